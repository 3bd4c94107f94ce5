# SPDX-License-Identifier: Apache-2.0
"""What a daemon and its helpers take of the host: read from /proc, see proc(5)."""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness import Daemon

_TICK = os.sysconf("SC_CLK_TCK")


def of(daemon: Daemon) -> dict[str, int]:
    """Pids of the daemon's long-lived processes by name: daemon, spawner, supervisor."""
    assert daemon.process is not None
    found = {"daemon": daemon.process.pid}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(path.parent.name)
        # A shim has its spawner's words, and a spawner for its parent.
        if pid in found.values() or not any(str(daemon.runtime).encode() in w for w in words):
            continue
        name = "supervisor" if any(b"supervisor" in word for word in words[:4]) else "spawner"
        if name not in found or parent(found[name]) == pid:
            found[name] = pid
    return found


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def parent(pid: int) -> int:
    return int(_stat(pid)[1])


def cpu_milliseconds(pid: int, *, children: bool = False) -> float:
    """Processor time of all threads; `children`: that of children that were waited for instead."""
    fields = _stat(pid)
    first = 13 if children else 11
    return (int(fields[first]) + int(fields[first + 1])) * 1000 / _TICK


def live_milliseconds(pid: int) -> float:
    """Processor time of the living threads, in nanoseconds' precision where the kernel has it."""
    tasks = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    if not tasks:
        return cpu_milliseconds(pid)
    return sum(int(path.read_text().split()[0]) for path in tasks) / 1e6


def resident_bytes(pid: int) -> int:
    return _rollup(pid, "Rss")


def private_bytes(pid: int) -> int:
    return _rollup(pid, "Private_Dirty") + _rollup(pid, "Private_Clean")


def _rollup(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def wake_ups(pid: int) -> int:
    """How often the process's threads have gone to sleep so far."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in path.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total


def children(pid: int) -> list[int]:
    return [
        int(child)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]
