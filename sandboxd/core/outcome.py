# SPDX-License-Identifier: Apache-2.0
"""Derives verdict and usage from the raw facts of an execution's end. Pure.

An OOM kill is judged by counters, or by a supervisor's report written before the kill; never by a
bare SIGKILL. `oom_kill` of the scope says that the kernel's OOM killer killed a process of the
scope. The limit hit is the scope's own if the scope's `oom` counts; else of the slice or the
aggregate whose memory.events.local `oom` rose meanwhile; else the host ran out of memory (kernel:
cgroup-v2.rst, memory.events).
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
class SupervisorVerdict:
    """Why a supervisor killed: "oom" or "cpu_time", and whose limit was passed."""

    reason: str
    owner: LimitOwner


@dataclass(frozen=True, slots=True)
class Facts:
    """The shim's record of an end.

    counters: None without a cgroup of the execution. verdict, supervised: a supervisor's verdict
    and what it measured; None without. pids_at_end: lower bound of the processes alive at the kill.
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
    verdict: SupervisorVerdict | None = None
    supervised: Usage | None = None


def decide(
    facts: Facts,
    *,
    own_limits: Collection[str],
    cpu_limit_seconds: float | None,
    pids_limit: int | None = None,
) -> Outcome:
    """Return the verdict.

    own_limits: names of the limits that the execution asked for. pids_limit: the RLIMIT_NPROC in
    force; None without.
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
            # The CPU limit was passed before the timeout; the next sample would have shown so.
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
    """Return the verdict for a shim that died without a record."""
    return Outcome(ExecutionStatus.LOST, ErrorCode.LOST)


def killed(code: ErrorCode) -> Outcome:
    """Return the verdict when the shim disobeyed a kill and the daemon killed shim and command."""
    return Outcome(ExecutionStatus.KILLED, code)


def timed_out(own_limits: Collection[str]) -> Outcome:
    """Return the verdict when the shim missed the timeout and the daemon ended the execution."""
    own = "timeout_seconds" in own_limits
    owner = LimitOwner.EXECUTION if own else LimitOwner.SANDBOX
    return Outcome(ExecutionStatus.TIMED_OUT, ErrorCode.TIMEOUT, owner)


def usage(facts: Facts) -> Usage:
    """Return the usage; None for unmeasured values."""
    counters = facts.counters
    if counters is None:
        return _supervised_usage(facts)
    return Usage(
        wall_seconds=facts.wall_seconds,
        cpu_seconds=_seconds(counters.get("cpu_usec")),
        cpu_user_seconds=_seconds(counters.get("cpu_user_usec")),
        cpu_system_seconds=_seconds(counters.get("cpu_system_usec")),
        cpu_throttled_seconds=_seconds(counters.get("cpu_throttled_usec")),
        memory_peak_bytes=counters.get("memory_peak_bytes"),
        # The shim is a process of the scope, but not of the program.
        pids_peak=_less_one(counters.get("pids_peak")),
        io_read_bytes=counters.get("io_read_bytes"),
        io_written_bytes=counters.get("io_written_bytes"),
        oom_kills=counters.get("oom_kill"),
        pids_denied=_pids_denied(facts),
    )


def with_ended(used: SandboxUsage, ended: Iterable[Usage], *, are_all: bool) -> SandboxUsage:
    """Return a sandbox's usage plus that of ended executions; sums are None unless `are_all`."""
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
    """Return the usage from the shim's counts, exact if awaited, and a supervisor's samples."""
    seen = facts.supervised or Usage()
    # Peak of a process between two samples; without samples the value would stand for the sum.
    largest = None if facts.supervised is None else facts.largest_process_bytes
    waited = facts.cpu_user_seconds + facts.cpu_system_seconds
    return Usage(
        wall_seconds=facts.wall_seconds,
        cpu_seconds=max(waited, seen.cpu_seconds or 0.0),
        cpu_user_seconds=facts.cpu_user_seconds,
        cpu_system_seconds=facts.cpu_system_seconds,
        cpu_throttled_seconds=seen.cpu_throttled_seconds,
        memory_peak_bytes=_larger(largest, seen.memory_peak_bytes),
        pids_peak=_larger(facts.pids_at_end, seen.pids_peak),
        io_read_bytes=_larger(facts.io_read_bytes, seen.io_read_bytes),
        io_written_bytes=_larger(facts.io_written_bytes, seen.io_written_bytes),
        oom_kills=seen.oom_kills,
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
    """Return the owner of the limit that the supervisor killed for; None if ended before."""
    verdict = facts.verdict
    if verdict is None or verdict.reason != reason or signal_number != signal.SIGKILL:
        return None
    return verdict.owner


def _pids_owner(
    facts: Facts, own_limits: Collection[str], pids_limit: int | None
) -> LimitOwner | None:
    counters = facts.counters
    if counters is None:
        # No counter shows forks refused by RLIMIT_NPROC. The only evidence is the full number of
        # processes; a single process has forked no child.
        at_end = facts.pids_at_end or 0
        if pids_limit is None or at_end < max(2, pids_limit):
            return None
        return LimitOwner.EXECUTION if "pids" in own_limits else LimitOwner.SANDBOX
    if counters.get("pids_max"):
        own = "pids" in own_limits
        if counters.get("sandbox_pids_max") is None:
            # Before Linux 6.11 `max` counts in the forking cgroup instead of the limiting cgroup.
            own = own and counters.get("pids_peak") == counters.get("pids_limit")
        return LimitOwner.EXECUTION if own else LimitOwner.SANDBOX
    return LimitOwner.SANDBOX if _rose(facts, "sandbox_pids_max") > 0 else None


def _pids_denied(facts: Facts) -> int | None:
    own = (facts.counters or {}).get("pids_max")
    return None if own is None else own + max(0, _rose(facts, "sandbox_pids_max"))


def _passed_cpu_limit(facts: Facts, limit: float | None) -> bool:
    return limit is not None and (usage(facts).cpu_seconds or 0.0) >= limit


def _passed_rlimit_cpu(facts: Facts, number: int | None, limit: float | None) -> bool:
    """Return whether RLIMIT_CPU ended the command: SIGXCPU, then SIGKILL (getrlimit(2))."""
    if limit is None or facts.counters is not None:
        return False
    used = facts.cpu_user_seconds + facts.cpu_system_seconds
    return number == signal.SIGXCPU or (number == signal.SIGKILL and used >= limit)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def _less_one(count: int | None) -> int | None:
    return None if count is None else max(0, count - 1)
