# SPDX-License-Identifier: Apache-2.0
"""Bounds on input outside bodies: request lines, headers, trailers, chunk lines.

Bytes are counted before the parser gets them, since aiohttp 3.11 (Debian 13) has no such bounds.
"""

from __future__ import annotations

MAX_BYTES = 32 << 10
MAX_LINES = 160
MAX_LINE_BYTES = 8 << 10
MAX_HEADERS = 128
# Bytes given to the parser at once: a bound may be exceeded by as much before being noticed.
PIECE_BYTES = 2 << 10


class Head:
    """Counts a connection's bytes and lines since the last complete message or piece of a body."""

    def __init__(self) -> None:
        self._bytes = 0
        self._lines = 0
        self._line_bytes = 0

    def clear(self) -> None:
        """Start counting anew after a complete message or a piece of a body."""
        self._bytes = self._lines = self._line_bytes = 0

    def continue_line(self, piece: bytes) -> str | None:
        """Count a piece outside a body before parsing; return an error if a line is too long."""
        first = piece.find(b"\n")
        longest = self._line_bytes + (len(piece) if first < 0 else first)
        self._line_bytes = longest if first < 0 else len(piece) - piece.rfind(b"\n") - 1
        return None if longest <= MAX_LINE_BYTES else f"a line is over {MAX_LINE_BYTES} bytes"

    def add(self, piece: bytes) -> str | None:
        """Count a piece that completed no message; return an error if a bound is exceeded."""
        self._bytes += len(piece)
        self._lines += piece.count(b"\n")
        if self._bytes > MAX_BYTES:
            return f"headers, or what is around a body's chunks, are over {MAX_BYTES} bytes"
        if self._lines > MAX_LINES:
            return f"there are over {MAX_HEADERS} headers"
        return None
