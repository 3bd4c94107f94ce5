# SPDX-License-Identifier: Apache-2.0
"""The first reason counts, and no time passes while an execution is frozen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.shim.ending import Ending


def ending(grace: float = 0.0) -> Ending:
    return Ending(timeout_seconds=10.0, grace_seconds=grace, now=100.0)


@pytest.mark.parametrize("second", ["timeout", "output", "oom", "killed", "exited"])
def test_the_first_reason_counts(second: str) -> None:
    end = ending()
    end.conclude("output")
    end.conclude(second)
    assert end.reason == "output"


def test_timeout_without_grace() -> None:
    end = ending()
    assert not end.check(109.9)
    assert (end.reason, end.wait_seconds(109.0)) == (None, 1.0)
    assert not end.check(110.0)
    assert end.reason == "timeout"


def test_timeout_with_grace_asks_once_and_then_ends() -> None:
    end = ending(grace=2.0)
    assert end.check(110.0)
    assert not end.check(110.5)
    assert (end.reason, end.wait_seconds(111.0)) == (None, 1.0)
    assert not end.check(112.0)
    assert end.reason == "timeout"


def test_an_exit_within_the_grace_is_the_stops_doing() -> None:
    end = ending()
    assert end.kill("KILLED_BY_CALLER", grace_seconds=5.0, now=101.0)
    end.conclude("exited")
    assert (end.reason, end.kill_code) == ("killed", "KILLED_BY_CALLER")


def test_a_second_kill_without_grace_ends_the_grace_of_the_first() -> None:
    end = ending()
    assert end.kill("KILLED_BY_CALLER", grace_seconds=50.0, now=101.0)
    assert not end.kill("SANDBOX_RELEASED", grace_seconds=0.0, now=102.0)
    assert (end.reason, end.kill_code) == ("killed", "KILLED_BY_CALLER")


def test_frozen_time_does_not_count() -> None:
    end = ending()
    end.freeze(105.0)
    assert end.wait_seconds(10_000.0) is None
    assert not end.check(10_000.0)
    end.freeze(10_000.0)
    end.thaw(10_000.0)
    assert end.wait_seconds(10_000.0) == 5.0
    end.check(10_005.0)
    assert end.reason == "timeout"


def test_frozen_time_does_not_count_towards_a_grace() -> None:
    end = ending(grace=2.0)
    assert end.check(110.0)
    end.freeze(111.0)
    end.thaw(500.0)
    assert end.wait_seconds(500.0) == 1.0


def test_a_frozen_program_gets_no_grace() -> None:
    end = ending()
    end.freeze(101.0)
    assert not end.kill("KILLED_BY_CALLER", grace_seconds=50.0, now=102.0)
    assert end.reason == "killed"


@given(st.lists(st.sampled_from(["check", "kill", "freeze", "thaw", "exit"]), max_size=20))
def test_it_ends_once_and_in_time(steps: list[str]) -> None:
    end, now, running = ending(grace=1.0), 100.0, 0.0
    for step in steps:
        now += 1.0
        running += 0.0 if end.is_frozen else 1.0
        match step:
            case "check":
                end.check(now)
            case "kill":
                end.kill("KILLED_BY_CALLER", grace_seconds=1.0, now=now)
            case "freeze":
                end.freeze(now)
            case "thaw":
                end.thaw(now)
            case "exit":
                end.conclude("exited")
    end.thaw(now)
    while end.reason is None:
        now += 1.0
        running += 1.0
        end.check(now)
        assert running < 40
