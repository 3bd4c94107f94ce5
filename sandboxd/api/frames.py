# SPDX-License-Identifier: Apache-2.0
"""Counts and sizes of messages received by a WebSocket (RFC 6455, section 5.2).

aiohttp keeps each message until a reader takes the complete message, but does not tell how many
bytes are kept.
"""

from __future__ import annotations

from collections import deque

from sandboxd.api.shares import SMALL_BYTES

_MOST_HEADER_BYTES = 14


class Frames:
    """Parses the frame headers of one connection."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self._is_data = self._is_last = False
        self._message_bytes = self._large = 0
        # For each complete message not taken yet: whether the message is large.
        self._complete: deque[bool] = deque()

    @property
    def is_large(self) -> bool:
        """Whether a waiting or incomplete message is larger than SMALL_BYTES."""
        return self._message_bytes > SMALL_BYTES or self._large > 0

    @property
    def waiting(self) -> int:
        """Return the number of complete messages not taken yet."""
        return len(self._complete)

    def taken(self) -> None:
        """Count the oldest complete message as taken."""
        if self._complete and self._complete.popleft():
            self._large -= 1

    def feed(self, data: bytes) -> None:
        """Parse received bytes; aiohttp refuses broken frames."""
        at = 0
        while at < len(data):
            if not self._left:
                at += self._begin(data[at : at + _MOST_HEADER_BYTES])
                continue
            size = min(self._left, len(data) - at)
            at += size
            self._left -= size
            if self._is_data:
                self._message_bytes += size
            if not self._left:
                self._end()

    def _begin(self, data: bytes) -> int:
        """Parse a header, complete or not; return how many bytes of `data` belong to the header."""
        before = len(self._header)
        header = self._header + data
        length = header[1] & 0x7F if len(header) > 1 else 0
        extended = {126: 2, 127: 8}.get(length, 0)
        size = 2 + extended + (4 if len(header) > 1 and header[1] & 0x80 else 0)
        if len(header) < size:
            self._header = header
            return len(data)
        self._header = b""
        self._is_data, self._is_last = header[0] & 0x0F < 8, bool(header[0] & 0x80)
        self._left = int.from_bytes(header[2 : 2 + extended], "big") if extended else length
        if not self._left:
            self._end()
        return size - before

    def _end(self) -> None:
        if self._is_data and self._is_last:
            is_large = self._message_bytes > SMALL_BYTES
            self._complete.append(is_large)
            self._large += is_large
            self._message_bytes = 0
