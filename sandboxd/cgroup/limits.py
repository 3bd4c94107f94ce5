# SPDX-License-Identifier: Apache-2.0
"""Reads a cgroup's limits back and says in words which limits differ from those asked for.

Format of the files: kernel, Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping

from sandboxd.cgroup.counters import read_text
from sandboxd.core.limits import LIMITS, Limit, Unit

_MAX = "max"


def mismatches(directory: str, asked: Mapping[str, float]) -> list[str]:
    """Return a sentence for each limit that is missing or different; empty when all are in force.

    asked: name of a limit -> value; a limit on memory means no swap as well.
    """
    found = []
    for limit in LIMITS:
        if limit.name in asked and limit.file is not None:
            found.append(_mismatch(directory, limit, limit.file, asked[limit.name]))
        if limit.name == "memory_bytes" and limit.name in asked:
            found.append(_swap(directory))
    return [words for words in found if words is not None]


def parse_cpu_max(text: str) -> float | None:
    """Return cores from cpu.max, "50000 100000" = 0.5; None for no limit."""
    quota, _, period = text.partition(" ")
    return None if quota == _MAX else int(quota) / int(period)


def parse_io_max(text: str) -> dict[str, dict[str, int | None]]:
    """Return device -> key -> value from io.max; None for no limit of that kind."""
    devices: dict[str, dict[str, int | None]] = {}
    for words in filter(None, map(str.split, text.splitlines())):
        device, *pairs = words
        keys = (pair.partition("=") for pair in pairs)
        devices[device] = {key: None if value == _MAX else int(value) for key, _, value in keys}
    return devices


def _mismatch(directory: str, limit: Limit, file: str, asked: float) -> str | None:
    text = read_text(directory, file)
    shown = f"{asked} {limit.noun}".rstrip()
    match limit.unit:
        case Unit.CORES:
            shown = f"{asked:g} {limit.noun}"
            cores = None if text is None else parse_cpu_max(text.strip())
            # systemd rounds the quota of one period to whole microseconds; periods are at least
            # 1 ms.
            is_right = cores is not None and abs(cores - asked) <= 0.001 + asked * 0.001
        case Unit.BYTES_PER_SECOND:
            shown = f"{limit.key}={asked} for some device"
            devices = {} if text is None else parse_io_max(text)
            is_right = any(values.get(limit.key or "") == asked for values in devices.values())
        case Unit.BYTES:
            # The kernel keeps whole pages.
            is_right = _says(text, int(asked) // mmap.PAGESIZE * mmap.PAGESIZE)
        case _:
            is_right = _says(text, asked)
    return None if is_right else _words(file, text, shown)


def _swap(directory: str) -> str | None:
    text = read_text(directory, "memory.swap.max")
    # A kernel without swap has no memory.swap.max, and no swap to limit.
    return None if text is None or _says(text, 0) else _words("memory.swap.max", text, "0 bytes")


def _says(text: str | None, number: float) -> bool:
    return text is not None and text.strip() == str(number)


def _words(name: str, text: str | None, asked: str) -> str:
    if text is None:
        shown = "is missing"
    else:
        shown = f"says {text.strip()!r}" if text.strip() else "is empty"
    return f"{name} {shown}, asked for {asked}"
