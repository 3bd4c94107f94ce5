# SPDX-License-Identifier: Apache-2.0
"""Copies a command's output to its spool files, with an exact cap, and its input from a file."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import Any

from sandboxd.shim.patience import patiently
from sandboxd.shim.stamps import Stamps

_CHUNK = 64 * 1024
# So much of a stream is kept as long as there is any room.
MODEST_BYTES = 1 << 20


class OutputStream:
    """One pipe from the command and the spool it is copied to.

    Keeps exactly the first `cap` bytes. A full disk loses bytes and is remembered in `error`;
    the command is never stopped by it. But a spool may not be larger than what it leaves free
    above `floor` bytes of its file system: `is_greedy` then, and nothing more is kept.
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
        """Copy what is there, at most one chunk; False at the end of the stream."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return True
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
            # How the master of a terminal tells that nobody has the slave open.
            return False
        if not data:
            return False
        room = self._cap - self.size_bytes
        if len(data) > room:
            self.truncated = True
            data = data[:room]
        if data:
            # First: whoever sees the bytes finds their time.
            self._stamps.note(self.size_bytes)
        self._keep(data)
        if self.size_bytes >= self._look_at:
            self._look_at = self.size_bytes + MODEST_BYTES
            self._look_at_room()
        return True

    def _look_at_room(self) -> None:
        found = os.fstatvfs(self._spool)
        if self.size_bytes > found.f_bavail * found.f_frsize - self._floor:
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

    def facts(self) -> dict[str, Any]:
        """For the record."""
        return {"size": self.size_bytes, "truncated": self.truncated, "error": self.error}


class InputFeed:
    """Writes the contents of a file into the command's standard input pipe, then closes it."""

    def __init__(self, source_fd: int, pipe_fd: int) -> None:
        self.fd = pipe_fd
        self._source = source_fd
        self._offset = 0

    def copy(self) -> bool:
        """Write one chunk; False when all is written or nobody reads any more."""
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
        """Close both ends; the command sees the end of its input."""
        os.close(self.fd)
        os.close(self._source)
