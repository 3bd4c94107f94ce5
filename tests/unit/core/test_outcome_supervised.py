# SPDX-License-Identifier: Apache-2.0
"""Verdicts and usage where no cgroup counts: by the shim's counts and a supervisor's words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandboxd.core.model import ErrorCode, ExecutionStatus, LimitOwner, Outcome, Usage
from sandboxd.core.outcome import Facts, SupervisorVerdict, decide, usage

KILLED = 9
FACTS = Facts(
    reason="exited",
    kill_code=None,
    wait_status=KILLED,
    wall_seconds=2.0,
    finished_at=0.0,
    kill_complete=True,
    leftovers_killed=0,
    cpu_user_seconds=1.0,
    cpu_system_seconds=0.5,
    streams=(),
)
SEEN = Usage(
    memory_peak_bytes=5000, pids_peak=3, cpu_seconds=2.5, io_read_bytes=10, io_written_bytes=90,
    cpu_throttled_seconds=0.25, oom_kills=3,
)  # fmt: skip


def verdict(facts: Facts) -> Outcome:
    return decide(facts, own_limits=(), cpu_limit_seconds=None)


@pytest.mark.parametrize("owner", [LimitOwner.SANDBOX, LimitOwner.EXECUTION])
def test_a_written_verdict_and_a_kill_are_an_oom(owner: LimitOwner) -> None:
    found = verdict(replace(FACTS, verdict=SupervisorVerdict("oom", owner)))
    assert found.status is ExecutionStatus.OOM_KILLED
    assert (found.error_code, found.limit_owner) == (ErrorCode.MEMORY, owner)


def test_a_kill_alone_is_none() -> None:
    assert verdict(FACTS) == Outcome(ExecutionStatus.SIGNALED, None, None, None, KILLED)


@pytest.mark.parametrize("wait_status", [0, 1 << 8, 15, 11])
def test_one_that_ended_by_itself_just_then_was_not_killed(wait_status: int) -> None:
    written = replace(
        FACTS, wait_status=wait_status, verdict=SupervisorVerdict("oom", LimitOwner.SANDBOX)
    )
    assert verdict(written) == verdict(replace(written, verdict=None))


def test_processor_time_is_told_apart() -> None:
    found = verdict(replace(FACTS, verdict=SupervisorVerdict("cpu_time", LimitOwner.EXECUTION)))
    assert found.status is ExecutionStatus.CPU_TIME_EXCEEDED
    assert found.error_code is ErrorCode.CPU_TIME


def test_usage_is_the_larger_of_what_two_saw() -> None:
    used = usage(
        replace(FACTS, supervised=SEEN, io_read_bytes=20, io_written_bytes=80,
                largest_process_bytes=6000)
    )  # fmt: skip
    assert (used.cpu_seconds, used.io_read_bytes, used.io_written_bytes) == (2.5, 20, 90)
    assert (used.memory_peak_bytes, used.pids_peak, used.oom_kills) == (6000, 3, 3)
    assert used.cpu_throttled_seconds == 0.25
    assert used.pids_denied is None


@pytest.mark.parametrize("seen", [None, Usage()])
def test_what_nobody_saw_is_none_and_never_zero(seen: Usage | None) -> None:
    used = usage(replace(FACTS, supervised=seen))
    assert (used.cpu_seconds, used.wall_seconds) == (1.5, 2.0)
    assert used.memory_peak_bytes is used.pids_peak is used.oom_kills is None
    assert used.io_read_bytes is used.io_written_bytes is used.cpu_throttled_seconds is None


EXITED = replace(FACTS, wait_status=0)


@pytest.mark.parametrize(
    ("at_end", "limit", "own", "owner"),
    [
        (20, 20, (), LimitOwner.SANDBOX),
        (21, 20, (), LimitOwner.SANDBOX),
        (20, 20, ("pids",), LimitOwner.EXECUTION),
        (19, 20, (), None),
        # A program that forks nobody wants no more than itself.
        (1, 1, (), None),
        (20, None, (), None),
        (None, 20, (), None),
    ],
)
def test_a_limit_of_processes_is_told_where_that_is_sure(
    at_end: int | None, limit: int | None, own: tuple[str, ...], owner: LimitOwner | None
) -> None:
    facts = replace(EXITED, pids_at_end=at_end, supervised=SEEN)
    found = decide(facts, own_limits=own, cpu_limit_seconds=None, pids_limit=limit)
    code = None if owner is None else ErrorCode.PIDS
    assert (found.status, found.error_code) == (ExecutionStatus.EXITED, code)
    assert found.limit_owner is owner
    assert usage(facts).pids_peak == max(at_end or 0, 3)


def test_what_the_shim_counted_is_known_without_a_look() -> None:
    assert usage(replace(FACTS, pids_at_end=20)).pids_peak == 20


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        (2.5, ExecutionStatus.CPU_TIME_EXCEEDED),
        (2.6, ExecutionStatus.TIMED_OUT),
        (None, ExecutionStatus.TIMED_OUT),
    ],
)
def test_a_limit_of_processor_time_that_was_passed_is_told_at_a_timeout(
    limit: float | None, status: ExecutionStatus
) -> None:
    facts = replace(FACTS, reason="timeout", supervised=SEEN)
    assert decide(facts, own_limits=(), cpu_limit_seconds=limit).status is status
