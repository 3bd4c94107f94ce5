# SPDX-License-Identifier: Apache-2.0
"""Writes when output came (sandboxd/protocol/times.py), in bounded space however much is printed.

An entry at most every 10 ms at first. Where the file is full, entries nearer than twice that to the
one before are dropped, as often as it takes to halve their number, and new ones are as far apart.
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
    """The times of one stream, which are kept beside its spool from the first byte on.

    started: the start of the execution on the monotonic clock; started_at: the same in seconds
    since 1970. Where an entry cannot be written there are no times at all any more, rather than
    wrong ones.
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
        """The byte at `offset` and what follows is here now; called before the spool has it."""
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
        """No more of them."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, path: str, flags: int) -> int:
        """A new file that begins as all do."""
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
            # What was said of an entry that goes is now said of the one before.
            self._precision += self._distance
            self._thin_out()

    def _thin_out(self) -> None:
        """Without the entries that are too near to the one before. A reader has the old file or
        the new one."""
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
