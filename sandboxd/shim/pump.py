# SPDX-License-Identifier: Apache-2.0
"""Copy a command's output to spool files, with an exact cap, and a file to the command's input."""

from __future__ import annotations

import errno
import os
from functools import partial

from sandboxd.osutil.space import space_of
from sandboxd.protocol.records import StreamRecord
from sandboxd.shim.patience import patiently
from sandboxd.shim.stamps import Stamps

_CHUNK = 64 * 1024
# So much of a stream is kept as long as there is any room.
MODEST_BYTES = 1 << 20


class OutputStream:
    """A pipe from the command and the spool that the shim copies to.

    Keeps exactly the first `cap` bytes. A full disk loses bytes and sets `error`; the command is
    never stopped. A spool larger than the space free above `floor` bytes of the file system sets
    `is_greedy`, and no more is kept.
    """

    def __init__(
        self, pipe_fd: int, spool_path: str, stamps: Stamps, cap: int, floor: int = 0
    ) -> None:
        self.fd = pipe_fd
        self.size_bytes = 0
        self.truncated = False
        self.error: str | None = None
        self.is_greedy = False
        self._stamps = stamps
        self._cap = cap
        self._floor = floor
        self._look_at = MODEST_BYTES
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._spool = os.open(spool_path, flags, 0o600)
        os.set_blocking(pipe_fd, False)

    def copy(self) -> bool:
        """Copy at most one chunk of what is there; False at the end of the stream."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return True
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
            # read(2) on a terminal's master: no process has the slave open.
            return False
        if not data:
            return False
        room = self._cap - self.size_bytes
        if len(data) > room:
            self.truncated = True
            data = data[:room]
        if data:
            # Noted first, so that every reader of the bytes finds the time.
            self._stamps.note(self.size_bytes)
        self._keep(data)
        if self.size_bytes >= self._look_at:
            self._look_at = self.size_bytes + MODEST_BYTES
            self._look_at_room()
        return True

    def _look_at_room(self) -> None:
        if self.size_bytes > space_of(self._spool).free_bytes - self._floor:
            self.is_greedy = self.truncated = True
            self._cap = self.size_bytes

    def _keep(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                written = patiently(partial(os.write, self._spool, view))
                self.size_bytes += written
                view = view[written:]
        except OSError as exc:
            self.error = exc.strerror
            self.truncated = True

    def close(self) -> None:
        """Close both ends, and the file of times."""
        os.close(self.fd)
        os.close(self._spool)
        self._stamps.close()

    def facts(self) -> StreamRecord:
        """Return the stream's part of the record."""
        return StreamRecord(self.size_bytes, self.truncated, self.error)


class InputFeed:
    """Writes the contents of a file into the command's standard input, then closes the pipe."""

    def __init__(self, source_fd: int, pipe_fd: int) -> None:
        self.fd = pipe_fd
        self._source = source_fd
        self._offset = 0

    def copy(self) -> bool:
        """Write one chunk; False when all is written or the read end is closed."""
        data = os.pread(self._source, _CHUNK, self._offset)
        if not data:
            return False
        try:
            self._offset += os.write(self.fd, data)
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return True

    def close(self) -> None:
        """Close both ends; the command sees the end of input."""
        os.close(self.fd)
        os.close(self._source)
