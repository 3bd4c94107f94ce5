# SPDX-License-Identifier: Apache-2.0
"""Raw facts of an execution's end -> verdict and usage. Pure: this is where an OOM is judged.

OOM by counters, or by what a supervisor wrote before it killed; never by a bare SIGKILL.
`oom_kill` of the scope says that the kernel's OOM killer took something in it. Whose limit: the
scope's own `oom` counts when its own limit was hit; else the slice or the aggregate whose
memory.events.local `oom` rose meanwhile; else the host's memory ran out (kernel: cgroup-v2.rst,
memory.events).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sandboxd.core.model import (
    ErrorCode,
    ExecutionStatus,
    LimitOwner,
    Outcome,
    OutputSummary,
    SandboxUsage,
    Usage,
)

_Counters = Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the shim saw. `counters` is None where no cgroup of the execution's own exists.

    verdict, supervised: what a supervisor wrote instead, None where it wrote nothing. pids_at_end:
    how many processes there were at once when they were killed, at least.
    """

    reason: str
    kill_code: str | None
    wait_status: int | None
    wall_seconds: float
    finished_at: float
    kill_complete: bool
    leftovers_killed: int
    cpu_user_seconds: float
    cpu_system_seconds: float
    streams: tuple[OutputSummary, ...]
    baseline: _Counters = field(default_factory=dict)
    counters: _Counters | None = None
    largest_process_bytes: int | None = None
    pids_at_end: int | None = None
    io_read_bytes: int | None = None
    io_written_bytes: int | None = None
    verdict: Mapping[str, Any] | None = None
    supervised: Mapping[str, Any] | None = None


def decide(
    facts: Facts,
    *,
    own_limits: Collection[str],
    cpu_limit_seconds: float | None,
    pids_limit: int | None = None,
) -> Outcome:
    """The one verdict. own_limits: names of the limits the execution itself had asked for.

    pids_limit: what RLIMIT_NPROC held, None where nothing did.
    """
    exit_code, signal_number = _exit(facts.wait_status)

    def outcome(
        status: ExecutionStatus, code: ErrorCode | None, owner: LimitOwner | None = None
    ) -> Outcome:
        return Outcome(status, code, owner, exit_code, signal_number)

    def whose(limit: str) -> LimitOwner:
        return LimitOwner.EXECUTION if limit in own_limits else LimitOwner.SANDBOX

    owner = _oom_owner(facts, own_limits) or _verdict_owner(facts, "oom", signal_number)
    if owner is LimitOwner.HOST:
        return outcome(ExecutionStatus.OOM_KILLED, ErrorCode.HOST_MEMORY, owner)
    if owner is not None:
        return outcome(ExecutionStatus.OOM_KILLED, ErrorCode.MEMORY, owner)
    match facts.reason:
        case "timeout" if _passed_cpu_limit(facts, cpu_limit_seconds):
            # As much was used before the time was over, and the next look would have told.
            status = ExecutionStatus.CPU_TIME_EXCEEDED
            return outcome(status, ErrorCode.CPU_TIME, whose("cpu_seconds"))
        case "timeout":
            return outcome(ExecutionStatus.TIMED_OUT, ErrorCode.TIMEOUT, whose("timeout_seconds"))
        case "cpu_time":
            status = ExecutionStatus.CPU_TIME_EXCEEDED
            return outcome(status, ErrorCode.CPU_TIME, whose("cpu_seconds"))
        case "output":
            return outcome(
                ExecutionStatus.OUTPUT_LIMIT, ErrorCode.OUTPUT, whose("max_output_bytes")
            )
        case "output_of_host":
            return outcome(ExecutionStatus.OUTPUT_LIMIT, ErrorCode.OUTPUT, LimitOwner.HOST)
        case "killed":
            code = ErrorCode(facts.kill_code or ErrorCode.KILLED_BY_CALLER)
            if code is ErrorCode.DISK:
                status = ExecutionStatus.DISK_QUOTA_EXCEEDED
                return outcome(status, code, LimitOwner.SANDBOX)
            if code is ErrorCode.OUTPUT:
                return outcome(ExecutionStatus.OUTPUT_LIMIT, code, LimitOwner.HOST)
            return outcome(ExecutionStatus.KILLED, code)
    over_time = _verdict_owner(facts, "cpu_time", signal_number) is not None
    if over_time or _passed_rlimit_cpu(facts, signal_number, cpu_limit_seconds):
        status = ExecutionStatus.CPU_TIME_EXCEEDED
        return outcome(status, ErrorCode.CPU_TIME, whose("cpu_seconds"))
    status = ExecutionStatus.EXITED if signal_number is None else ExecutionStatus.SIGNALED
    pids_owner = _pids_owner(facts, own_limits, pids_limit)
    if pids_owner is not None:
        return outcome(status, ErrorCode.PIDS, pids_owner)
    return outcome(status, None)


def lost() -> Outcome:
    """The verdict when the shim died without a record: nobody saw the end."""
    return Outcome(ExecutionStatus.LOST, ErrorCode.LOST)


def killed(code: ErrorCode) -> Outcome:
    """The verdict when the shim did not obey an order to kill and the daemon ended both."""
    return Outcome(ExecutionStatus.KILLED, code)


def timed_out(own_limits: Collection[str]) -> Outcome:
    """The verdict when the shim did not end an execution in time and the daemon did."""
    own = "timeout_seconds" in own_limits
    owner = LimitOwner.EXECUTION if own else LimitOwner.SANDBOX
    return Outcome(ExecutionStatus.TIMED_OUT, ErrorCode.TIMEOUT, owner)


def usage(facts: Facts) -> Usage:
    """What was used, None for what nobody measured."""
    counters = facts.counters
    if counters is None:
        return _supervised_usage(facts)
    return Usage(
        wall_seconds=facts.wall_seconds,
        cpu_seconds=_seconds(counters.get("cpu_usec")),
        cpu_user_seconds=_seconds(counters.get("cpu_user_usec")),
        cpu_system_seconds=_seconds(counters.get("cpu_system_usec")),
        cpu_throttled_seconds=_seconds(counters.get("cpu_throttled_usec")),
        memory_peak_bytes=counters.get("memory_peak"),
        # The shim is one of the scope's processes, not one of the program's.
        pids_peak=_less_one(counters.get("pids_peak")),
        io_read_bytes=counters.get("io_read"),
        io_written_bytes=counters.get("io_written"),
        oom_kills=counters.get("oom_kill"),
        pids_denied=_pids_denied(facts),
    )


def with_ended(used: SandboxUsage, ended: Iterable[Usage], *, are_all: bool) -> SandboxUsage:
    """A sandbox's usage with that of its ended executions; are_all: else the sums are unknown."""
    records = list(ended)

    def total(running: float | None, name: str) -> Any:
        values = [getattr(one, name) for one in records]
        if running is None or not are_all or None in values:
            return None
        return running + sum(values)

    def highest(known: int | None, name: str) -> int | None:
        values = [getattr(one, name) for one in records]
        return None if known is None else max([known, *(v for v in values if v is not None)])

    return replace(
        used,
        cpu_seconds=total(used.cpu_seconds, "cpu_seconds"),
        io_read_bytes=total(used.io_read_bytes, "io_read_bytes"),
        io_written_bytes=total(used.io_written_bytes, "io_written_bytes"),
        memory_peak_bytes=highest(used.memory_peak_bytes, "memory_peak_bytes"),
        pids_peak=highest(used.pids_peak, "pids_peak"),
        of_running_only=False,
    )


def _supervised_usage(facts: Facts) -> Usage:
    """The shim's own counts, exact for whom it waited for, and what a supervisor saw beside."""
    seen = facts.supervised or {}
    # Of a process that lived between two looks; without looks it would stand for the sum.
    largest = None if facts.supervised is None else facts.largest_process_bytes
    waited = facts.cpu_user_seconds + facts.cpu_system_seconds
    return Usage(
        wall_seconds=facts.wall_seconds,
        cpu_seconds=max(waited, seen.get("cpu_seconds") or 0.0),
        cpu_user_seconds=facts.cpu_user_seconds,
        cpu_system_seconds=facts.cpu_system_seconds,
        cpu_throttled_seconds=seen.get("cpu_throttled_seconds"),
        memory_peak_bytes=_larger(largest, seen.get("memory_peak")),
        pids_peak=_larger(facts.pids_at_end, seen.get("pids_peak")),
        io_read_bytes=_larger(facts.io_read_bytes, seen.get("io_read")),
        io_written_bytes=_larger(facts.io_written_bytes, seen.get("io_written")),
        oom_kills=seen.get("oom_kills"),
    )


def _larger(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None


def _exit(wait_status: int | None) -> tuple[int | None, int | None]:
    if wait_status is None:
        return None, None
    if os.WIFSIGNALED(wait_status):
        return None, os.WTERMSIG(wait_status)
    return os.WEXITSTATUS(wait_status), None


def _rose(facts: Facts, name: str) -> int:
    after = (facts.counters or {}).get(name)
    before = facts.baseline.get(name)
    return 0 if after is None or before is None else after - before


def _oom_owner(facts: Facts, own_limits: Collection[str]) -> LimitOwner | None:
    counters = facts.counters
    if counters is None or not counters.get("oom_kill"):
        return None
    if counters.get("oom"):
        return LimitOwner.EXECUTION if "memory_bytes" in own_limits else LimitOwner.SANDBOX
    if _rose(facts, "sandbox_oom") > 0:
        return LimitOwner.SANDBOX
    if _rose(facts, "aggregate_oom") > 0:
        return LimitOwner.AGGREGATE
    return LimitOwner.HOST


def _verdict_owner(facts: Facts, reason: str, signal_number: int | None) -> LimitOwner | None:
    """Whose limit the supervisor killed for. One that ended by itself just then was not killed."""
    verdict = facts.verdict
    if verdict is None or verdict["reason"] != reason or signal_number != signal.SIGKILL:
        return None
    return LimitOwner(verdict["owner"])


def _pids_owner(
    facts: Facts, own_limits: Collection[str], pids_limit: int | None
) -> LimitOwner | None:
    counters = facts.counters
    if counters is None:
        # No counter tells of a fork that RLIMIT_NPROC refused. That all which may be were there is
        # sure; a main process that is alone has forked nobody.
        at_end = facts.pids_at_end or 0
        if pids_limit is None or at_end < max(2, pids_limit):
            return None
        return LimitOwner.EXECUTION if "pids" in own_limits else LimitOwner.SANDBOX
    if counters.get("pids_max"):
        own = "pids" in own_limits
        if counters.get("sandbox_pids_max") is None:
            # Before Linux 6.11 `max` counts where the fork was, not where the limit is.
            own = own and counters.get("pids_peak") == counters.get("pids_limit")
        return LimitOwner.EXECUTION if own else LimitOwner.SANDBOX
    return LimitOwner.SANDBOX if _rose(facts, "sandbox_pids_max") > 0 else None


def _pids_denied(facts: Facts) -> int | None:
    own = (facts.counters or {}).get("pids_max")
    return None if own is None else own + max(0, _rose(facts, "sandbox_pids_max"))


def _passed_cpu_limit(facts: Facts, limit: float | None) -> bool:
    return limit is not None and (usage(facts).cpu_seconds or 0.0) >= limit


def _passed_rlimit_cpu(facts: Facts, number: int | None, limit: float | None) -> bool:
    """RLIMIT_CPU sends SIGXCPU at the soft limit and SIGKILL at the hard one (getrlimit(2))."""
    if limit is None or facts.counters is not None:
        return False
    used = facts.cpu_user_seconds + facts.cpu_system_seconds
    return number == signal.SIGXCPU or (number == signal.SIGKILL and used >= limit)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def _less_one(count: int | None) -> int | None:
    return None if count is None else max(0, count - 1)
