# SPDX-License-Identifier: Apache-2.0
"""Facts of /proc about processes, and about the boot that gave the pids."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from sandboxd.osutil.files import write_text

# Raised for an ended process: by open(2), and by read(2) of a file that is open already.
GONE = (FileNotFoundError, ProcessLookupError)


def stat_fields(data: bytes, most: int = -1) -> list[bytes]:
    """Return the fields of a stat file from the third, the state, on (proc_pid_stat(5)).

    The name before may hold any bytes, parentheses and blanks included. most: how often to split.
    """
    return data[data.rindex(b")") + 2 :].split(None, most)


def process_start_time(pid: int) -> int:
    """Return the start time in clock ticks since boot, which tells a reused pid apart.

    Raises FileNotFoundError or ProcessLookupError when the process is gone.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(stat_fields(file.read(), 20)[19])


def own_pid() -> int:
    """Return this process's pid in the mounted /proc, which may be an outer pid namespace's."""
    return int(os.readlink("/proc/self"))


def parent(pid: int) -> int:
    """Return the parent's pid; 0 when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(stat_fields(file.read(), 2)[1])
    except GONE:
        return 0


def threads(pid: int) -> list[int]:
    """Return the ids of a process's threads.

    Raises FileNotFoundError or ProcessLookupError when the process is gone.
    """
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def children(pid: int) -> Iterator[int]:
    """Yield the children of all threads of a process; none when the process is gone."""
    with suppress(*GONE):
        for thread in threads(pid):
            with suppress(*GONE):
                with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                    words = file.read().split()
                yield from map(int, words)


def owner(pid: int) -> int | None:
    """Return the effective uid of a process, as the owner of /proc/PID; None if there is none.

    The owner is right even for a process that is not dumpable (proc(5)).
    """
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return None


def pids() -> list[int]:
    """Return the pids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def owners() -> Iterator[tuple[int, int]]:
    """Yield pid and effective uid of each process."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with suppress(*GONE):
                    yield int(entry.name), entry.stat(follow_symlinks=False).st_uid


def set_oom_score_adj(score: int) -> None:
    """Set which processes the OOM killer takes first: -1000 never this one, 1000 this one.

    Raises PermissionError for a lower value without CAP_SYS_RESOURCE (proc_pid_oom_score_adj(5)).
    """
    write_text("/proc/self/oom_score_adj", str(score))


def boot_id() -> str:
    """Return the kernel's id of this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
