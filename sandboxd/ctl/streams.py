# SPDX-License-Identifier: Apache-2.0
"""Standard streams that may be closed, full, broken or non-blocking.

Lost output on stdout fails the call. Lost messages on stderr do not: the exit code still tells the
result.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any

# Descriptors that were closed at the start.
_closed: set[int] = set()


class Unwritable(OSError):
    """Raised when a write to standard output fails, unless by the end of the reader."""


class _Stream(io.BufferedWriter):
    """A buffered descriptor that waits when full, as another process may make it non-blocking.

    The raw file is written by C code alone: a Python-level exception of a signal between a write
    and its accounting would write the same bytes again.
    """

    def write(self, data: Any, /) -> int:
        """Buffer `data`; a full buffer is written out."""
        view = memoryview(data).cast("B")
        done = 0
        while True:
            try:
                return done + super().write(view[done:])
            except BlockingIOError as exc:
                done += exc.characters_written
                select.select([], [self.fileno()], [])
            except OSError as exc:
                self._fail(exc)
                return len(view)

    def flush(self) -> None:
        """Write out the buffer."""
        while True:
            try:
                return super().flush()
            except BlockingIOError:
                select.select([], [self.fileno()], [])
            except OSError as exc:
                return self._fail(exc)

    def _fail(self, exc: OSError) -> None:
        raise NotImplementedError


class _Output(_Stream):
    """Standard output. Raises BrokenPipeError or Unwritable."""

    def _fail(self, exc: OSError) -> None:
        if isinstance(exc, BrokenPipeError):
            raise exc
        raise Unwritable(exc.errno, exc.strerror) from exc


class _Words(_Stream):
    """Standard error: after a failed write all later messages are dropped."""

    def _fail(self, exc: OSError) -> None:
        give_up(self.fileno())


def prepare() -> None:
    """Open all three streams, so that no other file gets the number of a closed one."""
    if sys.__stdin__ is None:
        _fill(0, os.O_WRONLY)
        sys.stdin = open(0, encoding="utf-8", closefd=False)
    if sys.__stdout__ is None:
        _fill(1, os.O_RDONLY)
    if sys.__stderr__ is None:
        _fill(2, os.O_RDONLY)
    # A name from another user that this locale cannot encode must not end a listing.
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(_raw(1)), sys.__stdout__, "replace")
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Words(_raw(2)), sys.__stderr__, "backslashreplace")


def was_closed(descriptor: int) -> bool:
    """Return whether the descriptor was closed at the start."""
    return descriptor in _closed


def give_up_output() -> None:
    """Drop the rest of stdout's buffer, and all later output."""
    give_up(sys.stdout.fileno())


def give_up(descriptor: int) -> None:
    """Redirect a descriptor to /dev/null."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _fill(descriptor: int, flags: int) -> None:
    """Open /dev/null in the wrong direction: use still fails with EBADF, as when closed."""
    _closed.add(descriptor)
    null = os.open(os.devnull, flags)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)


def _raw(descriptor: int) -> io.FileIO:
    return io.FileIO(descriptor, "w", closefd=False)


def _text(target: _Stream, before: object, errors: str) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None)
    is_by_line = target.fileno() == 2 or target.isatty()
    return io.TextIOWrapper(target, encoding=encoding, errors=errors, line_buffering=is_by_line)
