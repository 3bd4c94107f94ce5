# SPDX-License-Identifier: Apache-2.0
"""What the tests of the supervisor share: a daemon without cgroups, its supervisor's process, and
how busy the host was."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.harness import Daemon, running_daemon

TICKS = os.sysconf("SC_CLK_TCK")
SPIN = "while :; do :; done"


@contextlib.contextmanager
def supervised(**settings: str) -> Iterator[Daemon]:
    """A daemon whose limits a supervisor holds."""
    with running_daemon(SANDBOX_CGROUP_MODE="off", **settings) as daemon:
        yield daemon


def supervisor_pid(daemon: Daemon) -> int | None:
    """The supervisor of this daemon's runtime directory; None while there is none."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if len(words) > 4 and words[-3].endswith(b"supervisor/__main__.py"):
                    if words[-2] == str(daemon.runtime).encode():
                        return int(entry.name)
    return None


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def host_seconds() -> tuple[float, float]:
    """Processor time of the whole host so far: all of it, and what nobody wanted."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) / TICKS, (fields[3] + fields[4]) / TICKS


def states(uid: int) -> list[str]:
    """The states of all processes of a uid: R, S, T, Z."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(entry.path).st_uid == uid:
                    text = Path(entry.path, "stat").read_text()
                    found.append(text.rpartition(")")[2].split()[0])
    return found


def home(daemon: Daemon, sandbox: str) -> Path:
    """A sandbox's home, from outside."""
    return daemon.state / "sandboxes" / sandbox / "home"
