# SPDX-License-Identifier: Apache-2.0
"""Reads when output came, from the times file beside a spool (protocol/times.py)."""

from __future__ import annotations

from datetime import UTC, datetime

from sandboxd.core.times import OutputTimes
from sandboxd.protocol.times import ENTRY, HEADER, MAGIC


def parsed(data: bytes) -> OutputTimes | None:
    """Return the times in a times file's bytes; None without a whole entry, or for other bytes."""
    count = (len(data) - HEADER.size) // ENTRY.size
    if count < 1 or not data.startswith(MAGIC):
        return None
    while count > 1 and not any(data[_place(count - 1) : _place(count)]):
        count -= 1
    _, started_at, precision = HEADER.unpack_from(data)
    entries = memoryview(data)[_place(0) : _place(count)]
    return OutputTimes(
        datetime.fromtimestamp(started_at, UTC),
        precision,
        offsets=entries.cast("Q")[::2],
        seconds=entries.cast("d")[1::2],
    )


def _place(index: int) -> int:
    return HEADER.size + index * ENTRY.size
