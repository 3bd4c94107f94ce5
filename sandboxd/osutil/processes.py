# SPDX-License-Identifier: Apache-2.0
"""What /proc tells of one process, and of the boot that gave its number."""

from __future__ import annotations


def stat_fields(data: bytes, most: int = -1) -> list[bytes]:
    """Fields of a stat file from the third, the state, on (proc_pid_stat(5)); the name before may
    hold anything, parentheses and blanks included. most: how often to split."""
    return data[data.rindex(b")") + 2 :].split(None, most)


def process_start_time(pid: int) -> int:
    """Start time in clock ticks since boot: tells a pid's reuse. Raises FileNotFoundError,
    ProcessLookupError when the process is gone."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(stat_fields(file.read(), 20)[19])


def boot_id() -> str:
    """The kernel's id of this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
