# SPDX-License-Identifier: Apache-2.0
"""The report after a program's output: outcome, usage, and who enforced the limits."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from sandboxd.client.calls import RUNNING
from sandboxd.core.limits import is_neutral
from sandboxd.core.quantity import format_bytes
from sandboxd.ctl.show import limit_value, number_of, printable, table

Execution = Mapping[str, Any]
# Prefix of the detail of a limit that is held loosely (docs/enforcement.md).
_ADVISORY = "advisory:"
_LOOSELY = "the supervisor as advice"
_WORDS = {"kernel": "the kernel", "supervisor": "the supervisor", "none": "nobody"}
_HOLDERS = ("the kernel", "the supervisor", _LOOSELY, "nobody")
_OUTPUT = "SANDBOX_OUTPUT_LIMIT_EXCEEDED"
# Limit of each error code.
_LIMITS = {
    "SANDBOX_MEMORY_LIMIT_EXCEEDED": "memory_bytes",
    "SANDBOX_PIDS_LIMIT_REACHED": "pids",
    "SANDBOX_DISK_QUOTA_EXCEEDED": "disk_bytes",
    "SANDBOX_TIMEOUT": "timeout_seconds",
    "SANDBOX_CPU_TIME_LIMIT_EXCEEDED": "cpu_seconds",
    _OUTPUT: "max_output_bytes",
}
_OWNERS = {
    "execution": "its own limit",
    "sandbox": "the sandbox's limit",
    "aggregate": "the limit of all sandboxes together",
    "host": "the host's memory",
}


def verdict(execution: Execution) -> str:
    """Return the outcome of an execution in one line."""
    status = execution["status"]
    if status == "EXITED":
        line = f"exited with code {execution['exit_code']}"
    elif status in RUNNING:
        line = "still runs"
    elif status == "SIGNALED":
        line = f"ended by {_signal_name(execution['signal'])}"
    else:
        line = status
    reasons = []
    if execution["error_code"]:
        reasons.append(execution["error_code"])
    owner = execution["limit_owner"]
    if owner == "host" and execution["error_code"] == _OUTPUT:
        reasons.append("the host's disk is nearly full")
    elif owner:
        name = _LIMITS.get(execution["error_code"] or "")
        of = f" of {limit_value(name, execution['limits'][name])}" if name else ""
        reasons.append(f"{_OWNERS.get(owner, owner)}{of if owner != 'aggregate' else ''}")
    if execution["failure"]:
        reasons.append(printable(execution["failure"]))
    if execution["unkillable"]:
        reasons.append("it cannot be killed: a process hangs in the kernel")
    return f"{line} ({', '.join(reasons)})" if reasons else line


def block(execution: Execution, *, is_long: bool) -> list[str]:
    """Return outcome, usage and enforcement: in one line, or a line for each limit."""
    limits, held = execution["limits"], execution["enforcement"]
    rows = enforcement(limits, held)
    if not rows:
        return summary(execution)
    return [*summary(execution), *(table(rows) if is_long else [holders(limits, held)])]


def summary(execution: Execution) -> list[str]:
    """Return outcome and usage; a running execution has no usage yet."""
    lines = [verdict(execution)]
    if execution["status"] not in RUNNING:
        lines.append(f"used: {_usage(execution['usage'])}")
    killed = execution["leftovers_killed"]
    if killed:
        lines.append(f"left behind and killed: {number_of(killed, 'process')}")
    lines += [
        f"{stream}: cut off after {execution[f'{stream}_bytes']} bytes"
        for stream in ("stdout", "stderr")
        if execution[f"{stream}_truncated"]
    ]
    return lines


def enforcement(limits: Mapping[str, Any], held: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a table of limits: value, holder and how; [] without enforced limits."""
    rows = [
        (name, limit_value(name, value), held[name]["by"], held[name]["detail"])
        for name, value in limits.items()
        if value is not None and name in held
    ]
    return [("LIMIT", "VALUE", "ENFORCED BY", "HOW"), *rows] if rows else []


def holders(limits: Mapping[str, Any], held: Mapping[str, Any]) -> str:
    """Return the holder of most limits, and by name the limits of each other holder."""
    by: dict[str, list[str]] = {}
    for name, value in limits.items():
        if value is not None and name in held and not is_neutral(name, value):
            by.setdefault(_holder(held[name]), []).append(name)
    # A tie goes to the better holder, the first in _HOLDERS.
    first = max(by, key=lambda who: (len(by[who]), -_HOLDERS.index(who)))
    others = [f"{', '.join(by[who])} by {who}" for who in _HOLDERS if who in by and who != first]
    return f"limits held by {first}" + (f", but {'; '.join(others)}" if others else "")


def _holder(held: Mapping[str, Any]) -> str:
    if held["by"] == "supervisor" and held["detail"].startswith(_ADVISORY):
        return _LOOSELY
    return _WORDS[held["by"]]


def _usage(usage: Mapping[str, Any]) -> str:
    parts = [
        ("wall", _seconds(usage["wall_seconds"])),
        ("cpu", _seconds(usage["cpu_seconds"])),
        ("memory peak", _size(usage["memory_peak_bytes"])),
        ("pids peak", _count(usage["pids_peak"])),
        ("read", _size(usage["io_read_bytes"])),
        ("written", _size(usage["io_written_bytes"])),
    ]
    if usage["oom_kills"]:
        parts.append(("OOM kills", str(usage["oom_kills"])))
    if usage["pids_denied"]:
        parts.append(("forks denied", str(usage["pids_denied"])))
    if usage["cpu_throttled_seconds"]:
        parts.append(("throttled", _seconds(usage["cpu_throttled_seconds"])))
    return ", ".join(f"{name} {value}" for name, value in parts)


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} s"


def _size(value: int | None) -> str:
    return "unknown" if value is None else format_bytes(value)


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
