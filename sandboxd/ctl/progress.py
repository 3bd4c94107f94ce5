# SPDX-License-Identifier: Apache-2.0
"""How far something long is, on stderr, where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

from sandboxd.ctl.show import printable
from sandboxd.quantity import format_bytes

_PAUSE_SECONDS = 0.1
# Carriage return, and erase to the end of the line (ECMA-48).
_LINE = "\r{}\x1b[K"


class Progress:
    """A line that counts bytes; nothing at all where nobody sees it."""

    def __init__(self, label: str, total_bytes: int | None) -> None:
        self._label = printable(label)
        self._total = total_bytes
        self._done = 0
        self._next = time.monotonic() + _PAUSE_SECONDS
        self._is_shown = sys.stderr.isatty()
        self._was_shown = False

    def count(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """`pieces`, counted as they go through."""
        try:
            for piece in pieces:
                yield piece
                self._done += len(piece)
                if self._is_shown and time.monotonic() >= self._next:
                    self._show()
        finally:
            if self._was_shown:
                print(_LINE.format(""), end="", file=sys.stderr, flush=True)

    def _show(self) -> None:
        self._next = time.monotonic() + _PAUSE_SECONDS
        self._was_shown = True
        print(_LINE.format(self.line()), end="", file=sys.stderr, flush=True)

    def line(self) -> str:
        """What is shown."""
        done = format_bytes(self._done)
        if not self._total:
            return f"{self._label}  {done}"
        percent = 100 * self._done // self._total
        return f"{self._label}  {done} of {format_bytes(self._total)}  {percent}%"
