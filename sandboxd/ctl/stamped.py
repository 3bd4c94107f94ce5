# SPDX-License-Identifier: Apache-2.0
"""A time before each line of a stream."""

from __future__ import annotations

from datetime import datetime

UNKNOWN = "-"


class Stamped:
    """One stream, in pieces that may end within a line."""

    def __init__(self) -> None:
        self._is_within_line = False

    def lines(self, data: bytes, at: datetime | None) -> bytes:
        """Return the next piece, with `at` (None = unknown) before each line that begins there."""
        if not data:
            return b""
        begin = f"{UNKNOWN if at is None else _utc(at)} ".encode()
        last_line_end = data[len(data.removesuffix(b"\n")) :]
        text = data.removesuffix(b"\n").replace(b"\n", b"\n" + begin) + last_line_end
        if not self._is_within_line:
            text = begin + text
        self._is_within_line = not last_line_end
        return text


def _utc(at: datetime) -> str:
    """Return a time in the form of docs/api.md, in milliseconds or finer."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
