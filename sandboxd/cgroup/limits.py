# SPDX-License-Identifier: Apache-2.0
"""Reads a cgroup's limits back and says in words which are not what was asked for.

Format of the files: kernel, Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass

from sandboxd.cgroup.counters import read_text

_MAX = "max"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a cgroup's files should say; None = not asked for."""

    memory_bytes: int
    cpus: float | None = None
    tasks: int | None = None
    io_read_bytes_per_second: int | None = None
    io_write_bytes_per_second: int | None = None


def mismatches(directory: str, expected: Expected) -> list[str]:
    """One sentence per limit that is missing or different; empty when all are in force."""
    found = [
        _memory(directory, expected.memory_bytes),
        _swap(directory),
        _tasks(directory, expected.tasks),
        _cpu(directory, expected.cpus),
        _io(directory, "rbps", expected.io_read_bytes_per_second),
        _io(directory, "wbps", expected.io_write_bytes_per_second),
    ]
    return [words for words in found if words is not None]


def parse_cpu_max(text: str) -> float | None:
    """Cores from cpu.max, "50000 100000" = 0.5; None for no limit."""
    quota, _, period = text.partition(" ")
    return None if quota == _MAX else int(quota) / int(period)


def parse_io_max(text: str) -> dict[str, dict[str, int | None]]:
    """Device -> key -> value from io.max; None for no limit of that kind."""
    devices: dict[str, dict[str, int | None]] = {}
    for words in filter(None, map(str.split, text.splitlines())):
        device, *pairs = words
        keys = (pair.partition("=") for pair in pairs)
        devices[device] = {key: None if value == _MAX else int(value) for key, _, value in keys}
    return devices


def _memory(directory: str, asked: int) -> str | None:
    text = read_text(directory, "memory.max")
    # The kernel keeps whole pages.
    kept = asked // mmap.PAGESIZE * mmap.PAGESIZE
    return _compare("memory.max", text, str(kept), f"{asked} bytes")


def _swap(directory: str) -> str | None:
    text = read_text(directory, "memory.swap.max")
    # A kernel without swap has no such file, and nothing to be limited.
    return None if text is None else _compare("memory.swap.max", text, "0", "0 bytes")


def _tasks(directory: str, asked: int | None) -> str | None:
    if asked is None:
        return None
    return _compare("pids.max", read_text(directory, "pids.max"), str(asked), f"{asked} tasks")


def _cpu(directory: str, asked: float | None) -> str | None:
    if asked is None:
        return None
    text = read_text(directory, "cpu.max")
    cores = None if text is None else parse_cpu_max(text.strip())
    # systemd rounds the quota of one period to whole microseconds; periods are at least 1 ms.
    if cores is not None and abs(cores - asked) <= 0.001 + asked * 0.001:
        return None
    return _words("cpu.max", text, f"{asked:g} cores")


def _io(directory: str, key: str, asked: int | None) -> str | None:
    if asked is None:
        return None
    text = read_text(directory, "io.max")
    devices = {} if text is None else parse_io_max(text)
    if any(values.get(key) == asked for values in devices.values()):
        return None
    return _words("io.max", text, f"{key}={asked} for some device")


def _compare(name: str, text: str | None, wanted: str, asked: str) -> str | None:
    return None if text is not None and text.strip() == wanted else _words(name, text, asked)


def _words(name: str, text: str | None, asked: str) -> str:
    if text is None:
        shown = "is missing"
    else:
        shown = f"says {text.strip()!r}" if text.strip() else "is empty"
    return f"{name} {shown}, asked for {asked}"
