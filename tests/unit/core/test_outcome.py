# SPDX-License-Identifier: Apache-2.0
"""The verdict is a pure function of what the shim read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.core.model import ErrorCode, ExecutionStatus, LimitOwner, Outcome, OutputSummary
from sandboxd.core.outcome import Facts, decide, lost, usage

EXITED_3 = 3 << 8
BY_SIGKILL = 9
QUIET = {"sandbox_oom": 5, "aggregate_oom": 0, "sandbox_pids_max": 7, "aggregate_pids_max": 0}
COUNTERS: dict[str, int | None] = {
    **QUIET,
    "oom": 0,
    "oom_kill": 0,
    "memory_peak_bytes": 1 << 20,
    "pids_max": 0,
    "pids_peak": 4,
    "pids_limit": 65,
    "cpu_usec": 1_500_000,
    "cpu_user_usec": 1_000_000,
    "cpu_system_usec": 500_000,
    "cpu_throttled_usec": 0,
    "io_read_bytes": 4096,
    "io_written_bytes": 0,
}


def facts(counters: dict[str, int | None] | None = None, **changes: Any) -> Facts:
    base = Facts(
        reason="exited",
        kill_code=None,
        wait_status=0,
        wall_seconds=2.0,
        finished_at=0.0,
        kill_complete=True,
        leftovers_killed=0,
        cpu_user_seconds=0.25,
        cpu_system_seconds=0.5,
        streams=(OutputSummary(), OutputSummary()),
        baseline=QUIET,
        counters={**COUNTERS, **(counters or {})},
    )
    return replace(base, **changes)


def verdict(end: Facts, *own: str, cpu: float | None = None) -> Outcome:
    return decide(end, own_limits=own, cpu_limit_seconds=cpu)


def short(outcome: Outcome) -> tuple[str, str | None, str | None]:
    return outcome.status, outcome.error_code, outcome.limit_owner


@pytest.mark.parametrize(
    ("counters", "own", "expected"),
    [
        ({"oom": 1, "oom_kill": 2}, ["memory_bytes"], (ErrorCode.MEMORY, LimitOwner.EXECUTION)),
        ({"oom": 1, "oom_kill": 2}, [], (ErrorCode.MEMORY, LimitOwner.SANDBOX)),
        ({"oom_kill": 1, "sandbox_oom": 6}, [], (ErrorCode.MEMORY, LimitOwner.SANDBOX)),
        ({"oom_kill": 1, "sandbox_oom": 6}, ["memory_bytes"],
         (ErrorCode.MEMORY, LimitOwner.SANDBOX)),
        ({"oom_kill": 1, "aggregate_oom": 1}, [], (ErrorCode.MEMORY, LimitOwner.AGGREGATE)),
        ({"oom_kill": 1}, [], (ErrorCode.HOST_MEMORY, LimitOwner.HOST)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("reason", ["exited", "oom", "timeout", "killed"])
def test_oom_is_judged_by_counters(
    counters: dict[str, int | None], own: list[str], expected: tuple[str, str], reason: str
) -> None:
    end = facts(counters, reason=reason, wait_status=BY_SIGKILL)
    assert short(verdict(end, *own)) == (ExecutionStatus.OOM_KILLED, *expected)


def test_an_oom_elsewhere_in_the_sandbox_is_not_told_to_a_survivor() -> None:
    end = facts({"sandbox_oom": 6, "aggregate_oom": 3})
    assert short(verdict(end)) == (ExecutionStatus.EXITED, None, None)


@pytest.mark.parametrize("counters", [COUNTERS, None], ids=["cgroup", "no cgroup"])
def test_a_bare_sigkill_is_no_oom(counters: dict[str, int | None] | None) -> None:
    end = replace(facts(), wait_status=BY_SIGKILL, counters=counters)
    outcome = verdict(end)
    assert short(outcome) == (ExecutionStatus.SIGNALED, None, None)
    assert (outcome.exit_code, outcome.signal) == (None, 9)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("timeout", (ExecutionStatus.TIMED_OUT, ErrorCode.TIMEOUT)),
        ("cpu_time", (ExecutionStatus.CPU_TIME_EXCEEDED, ErrorCode.CPU_TIME)),
        ("output", (ExecutionStatus.OUTPUT_LIMIT, ErrorCode.OUTPUT)),
    ],
)
def test_the_reason_decides(reason: str, expected: tuple[str, str]) -> None:
    outcome = verdict(facts(reason=reason, wait_status=EXITED_3))
    assert short(outcome)[:2] == expected
    assert outcome.exit_code == 3


@pytest.mark.parametrize("code", ["KILLED_BY_CALLER", "SANDBOX_RELEASED", "HOST_DRAINING"])
def test_a_kill_says_who(code: str) -> None:
    outcome = verdict(facts(reason="killed", kill_code=code, wait_status=BY_SIGKILL))
    assert short(outcome) == (ExecutionStatus.KILLED, code, None)


@pytest.mark.parametrize(
    ("counters", "own", "owner"),
    [
        ({"pids_max": 3}, ["pids"], LimitOwner.EXECUTION),
        ({"pids_max": 3}, [], LimitOwner.SANDBOX),
        ({"sandbox_pids_max": 9}, ["pids"], LimitOwner.SANDBOX),
        # Before Linux 6.11 the fork's own cgroup counts, whoever's limit it was.
        ({"pids_max": 3, "sandbox_pids_max": None, "pids_peak": 65}, ["pids"],
         LimitOwner.EXECUTION),
        ({"pids_max": 3, "sandbox_pids_max": None, "pids_peak": 40}, ["pids"], LimitOwner.SANDBOX),
    ],
)  # fmt: skip
def test_a_denied_fork_is_named_and_its_owner_told(
    counters: dict[str, int | None], own: list[str], owner: str
) -> None:
    end = facts(counters, wait_status=EXITED_3)
    assert short(verdict(end, *own)) == (ExecutionStatus.EXITED, ErrorCode.PIDS, owner)


@pytest.mark.parametrize(
    ("number", "used", "expected"),
    [
        (24, 0.0, ExecutionStatus.CPU_TIME_EXCEEDED),
        (9, 2.0, ExecutionStatus.CPU_TIME_EXCEEDED),
        (9, 0.5, ExecutionStatus.SIGNALED),
    ],
)
def test_rlimit_cpu(number: int, used: float, expected: str) -> None:
    end = replace(
        facts(), counters=None, wait_status=number, cpu_user_seconds=used, cpu_system_seconds=0.0
    )
    assert verdict(end, cpu=1.0).status == expected


def test_usage_comes_from_the_cgroup() -> None:
    used = usage(facts({"pids_max": 2, "sandbox_pids_max": 10}))
    assert used.cpu_seconds == 1.5
    assert used.memory_peak_bytes == 1 << 20
    assert used.pids_peak == 3
    assert used.pids_denied == 5
    assert used.oom_kills == 0


def test_unknown_is_none_and_never_zero() -> None:
    used = usage(replace(facts(), counters=None))
    assert used.cpu_seconds == 0.75
    assert used.memory_peak_bytes is None
    assert used.pids_denied is None
    old_kernel = usage(facts({"memory_peak_bytes": None, "pids_peak": None}))
    assert old_kernel.memory_peak_bytes is None
    assert old_kernel.pids_peak is None


def test_lost() -> None:
    assert short(lost()) == (ExecutionStatus.LOST, ErrorCode.LOST, None)


counter = st.one_of(st.none(), st.integers(0, 1 << 40))


@given(
    counters=st.one_of(st.none(), st.fixed_dictionaries(dict.fromkeys(COUNTERS, counter))),
    baseline=st.fixed_dictionaries(dict.fromkeys(QUIET, counter)),
    reason=st.sampled_from(["exited", "oom", "timeout", "cpu_time", "output", "killed"]),
    wait_status=st.one_of(st.none(), st.integers(0, 255).map(lambda code: code << 8),
                          st.integers(1, 64)),
    own=st.sets(st.sampled_from(["memory_bytes", "pids", "cpus"])),
)  # fmt: skip
def test_any_facts_give_one_final_verdict(
    counters: dict[str, int | None] | None,
    baseline: dict[str, int | None],
    reason: str,
    wait_status: int | None,
    own: set[str],
) -> None:
    end = facts(reason=reason, wait_status=wait_status, baseline=baseline)
    end = replace(end, counters=counters)
    outcome = decide(end, own_limits=own, cpu_limit_seconds=None)
    assert outcome.status.is_final
    killed = bool(counters and counters["oom_kill"])
    assert (outcome.status is ExecutionStatus.OOM_KILLED) == killed
    used = usage(end)
    for value in (used.pids_denied, used.pids_peak, used.oom_kills):
        assert value is None or value >= 0
