# SPDX-License-Identifier: Apache-2.0
"""Parses and formats sizes (base 1024), durations and cores. Values inside are plain numbers."""

from __future__ import annotations

import math
import re

_BYTE_SUFFIXES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Patterns compile on first use, which most of sandboxctl's commands never reach.
_BYTES = r"(?ai)(\d+(?:\.\d+)?)\s*([BKMGT]?)(?:i?B)?"
# systemd.time(7), the units that make sense for a limit.
_SECONDS = {
    "us": 1e-6, "usec": 1e-6,
    "ms": 1e-3, "msec": 1e-3,
    "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip
_DURATION_PART = r"(?a)(\d+(?:\.\d+)?)\s*([a-z]*)\s*"
_MAX_TEXT = 64

# cgroup and systemd numbers are 64 bit; one bit of margin keeps every sum of two in range.
MAX_BYTES = 1 << 62
MAX_SECONDS = 10 * 366 * 86400.0
MAX_CPUS = 8192.0


def parse_bytes(value: int | str) -> int:
    """Return 1..2**62 bytes from an integer or "512M" (base 1024). Raises ValueError."""
    if isinstance(value, str):
        text = value.strip()
        match = re.fullmatch(_BYTES, text)
        if match is None or len(text) > _MAX_TEXT:
            raise ValueError('not a size: use bytes or a string such as "512M"')
        number = float(match[1]) * _BYTE_SUFFIXES[match[2].upper()]
        amount = int(match[1]) * _BYTE_SUFFIXES[match[2].upper()] if match[1].isdigit() else number
        if amount != int(amount):
            raise ValueError("not a whole number of bytes")
        value = int(amount)
    if not 1 <= value <= MAX_BYTES:
        raise ValueError("must be at least 1 byte and at most 2**62 bytes")
    return value


def parse_seconds(value: float | str) -> float:
    """Return seconds, at most ten years, from a number, "90s", "1h 30min". Raises ValueError."""
    if isinstance(value, str):
        value = _sum_of_parts(value.strip())
    return _positive(value, MAX_SECONDS, f"{MAX_SECONDS / 86400:g} days")


def parse_cpus(value: float | str) -> float:
    """Return 0.01..8192 cores from a number or "150%". Raises ValueError."""
    if isinstance(value, str):
        text = value.strip()
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text, re.ASCII)
        if match is None or len(text) > _MAX_TEXT:
            raise ValueError('not a number of cores: use 1.5 or "150%"')
        value = float(match[1]) / (100.0 if match[2] else 1.0)
    cores = _positive(value, MAX_CPUS, f"{MAX_CPUS:g} cores")
    if cores < 0.01:
        raise ValueError("must be at least 0.01 cores")
    return cores


def _sum_of_parts(text: str) -> float:
    """Sum the parts of a duration; one pattern would take exponential time for "111...1!"."""
    pattern = re.compile(_DURATION_PART)
    position, total = 0, 0.0
    while position < len(text) or not text:
        part = pattern.match(text, position)
        if part is None or len(text) > _MAX_TEXT:
            raise ValueError('not a duration: use seconds or a string such as "90s"')
        number, unit = part.groups()
        if unit not in _SECONDS:
            raise ValueError(f"unknown unit of time {unit!r}: use ms, s, min, h, d or w")
        total += float(number) * _SECONDS[unit]
        position = part.end()
    return total


def _positive(value: float, maximum: float, shown: str) -> float:
    # Compared before the conversion: an int may be too large for a float.
    if value != value or value in (math.inf, -math.inf) or value <= 0:
        raise ValueError("must be a finite number above 0")
    if value > maximum:
        raise ValueError(f"must be at most {shown}")
    return float(value)


def format_bytes(value: int) -> str:
    """Return bytes for people: "256 MiB", "1.5 GiB", "17 B"."""
    amount = float(value)
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        del units[0]
    unit = units[0]
    return f"{amount:.0f} {unit}" if amount == int(amount) else f"{amount:.1f} {unit}"
