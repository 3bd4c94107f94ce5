# SPDX-License-Identifier: Apache-2.0
"""What the host's own tools and files say, for comparison with what sandboxd says."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

CGROUPS = Path("/sys/fs/cgroup")
_T = TypeVar("_T")


def show(unit: str, *names: str) -> dict[str, str]:
    """`systemctl show`."""
    done = subprocess.run(
        ["systemctl", "show", unit, *(f"--property={name}" for name in names)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def cgroup(unit: str) -> Path:
    """The directory of an active unit."""
    return CGROUPS / show(unit, "ControlGroup")["ControlGroup"].lstrip("/")


def attribute(unit: str, name: str) -> str:
    """The text of one of its cgroup files."""
    return (cgroup(unit) / name).read_text().strip()


def sandboxd_units() -> set[str]:
    """All loaded units of any daemon."""
    done = subprocess.run(
        ["systemctl", "list-units", "--all", "--plain", "--no-legend", "sandboxd*"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return {line.split()[0] for line in done.stdout.splitlines()}


def processes_of(uid: int) -> list[int]:
    """Pids of a uid, zombies included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == uid:
                    found.append(int(entry.name))
            except FileNotFoundError:
                continue
    return found


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(check: Callable[[], _T], seconds: float = 30.0) -> _T:
    """The first true answer of `check`, asked again and again until the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer or time.monotonic() > deadline:
            assert answer, f"not true within {seconds} s"
            return answer
        time.sleep(0.02)
