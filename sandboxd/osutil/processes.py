# SPDX-License-Identifier: Apache-2.0
"""Facts of /proc about one process, and about the boot that gave the pid."""

from __future__ import annotations


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


def boot_id() -> str:
    """Return the kernel's id of this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
