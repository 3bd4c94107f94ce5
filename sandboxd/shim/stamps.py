# SPDX-License-Identifier: Apache-2.0
"""Record when output came (sandboxd/protocol/times.py), in bounded space however much is printed.

An entry at most every 10 ms at first. When the file is full, the distance doubles and entries
nearer than the distance to the entry before are dropped, until half of the entries are left; new
entries keep the distance.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from sandboxd.osutil.files import temporary_name
from sandboxd.protocol.times import ENTRY, HEADER, MAGIC, MAX_ENTRIES, SUFFIX
from sandboxd.shim.patience import patiently

_DISTANCE_SECONDS = 0.01
_BLOCK_BYTES = 256 * ENTRY.size


class Stamps:
    """The times of one stream, in a file beside the spool from the first byte on.

    started: the start of the execution on the monotonic clock; started_at: the same in seconds
    since 1970. Where an entry cannot be written the file is removed: no times rather than wrong
    times.
    """

    def __init__(
        self, spool_path: str, started: float, started_at: float, *,
        clock: Callable[[], float] = time.monotonic, most: int = MAX_ENTRIES,
    ) -> None:  # fmt: skip
        self._path = f"{spool_path}{SUFFIX}"
        self._started = started
        self._started_at = started_at
        self._clock = clock
        self._most = most
        self._fd = -1
        self._count = 0
        self._distance = self._precision = _DISTANCE_SECONDS
        self._due = 0.0

    def note(self, offset: int) -> None:
        """Note the time of the byte at `offset`; called before the spool has the byte."""
        now = self._clock() - self._started
        if now < self._due:
            return
        try:
            if self._fd < 0:
                self._fd = self._open(self._path, os.O_EXCL)
            if self._count == self._most:
                self._halve()
            if now >= self._due:
                _append(self._fd, ENTRY.pack(offset, now))
                self._count += 1
                self._due = now + self._distance
        except OSError:
            self._give_up()

    def close(self) -> None:
        """Close the file; no more entries."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, path: str, flags: int) -> int:
        """Open a file and write the header."""
        flags |= os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        fd = patiently(lambda: os.open(path, flags, 0o600))
        try:
            _append(fd, HEADER.pack(MAGIC, self._started_at, self._precision))
        except OSError:
            os.close(fd)
            raise
        return fd

    def _halve(self) -> None:
        while self._count > self._most // 2:
            self._distance *= 2
            # The time of a dropped entry is now that of the entry before.
            self._precision += self._distance
            self._thin_out()

    def _thin_out(self) -> None:
        """Drop entries nearer than the distance; the file is replaced, so readers see either."""
        temporary = temporary_name(self._path)
        fd = self._open(temporary, os.O_TRUNC)
        try:
            count, last = 0, -math.inf
            for block in self._blocks():
                kept = bytearray()
                for offset, seconds in ENTRY.iter_unpack(block):
                    if seconds - last >= self._distance:
                        kept += ENTRY.pack(offset, seconds)
                        count, last = count + 1, seconds
                _append(fd, kept)
            patiently(lambda: os.rename(temporary, self._path))
        except OSError:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd, self._count, self._due = fd, count, last + self._distance

    def _blocks(self) -> Iterator[bytes]:
        place = HEADER.size
        while block := os.pread(self._fd, _BLOCK_BYTES, place):
            yield block
            place += len(block)

    def _give_up(self) -> None:
        self._due = math.inf
        self.close()
        for path in (self._path, temporary_name(self._path)):
            with suppress(OSError):
                os.unlink(path)


def _append(fd: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[patiently(partial(os.write, fd, view)) :]
