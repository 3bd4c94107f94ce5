# SPDX-License-Identifier: Apache-2.0
"""Standard streams of ours that may be closed, full, broken or not blocking.

What was to be printed is the purpose of a call: where it is lost, the call fails. What is said on
stderr beside it is not: where that is lost, the exit code still tells.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any

# As they were when we were started.
_closed: set[int] = set()


class Unwritable(OSError):
    """Raised when standard output takes no more, and not since its reader has gone."""


class _Stream(io.BufferedWriter):
    """A descriptor that somebody else may have made non-blocking: then a full one is waited for.

    Its raw file is C's alone: a signal's exception between a write and its account would have the
    same bytes written again.
    """

    def write(self, data: Any, /) -> int:
        """Into the buffer, or further where that is full."""
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
        """All of the buffer."""
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
    """Standard error: what cannot be said is not."""

    def _fail(self, exc: OSError) -> None:
        give_up(self.fileno())


def prepare() -> None:
    """Have all three streams, so that no file of ours gets the number of a closed one."""
    if sys.__stdin__ is None:
        _fill(0, os.O_WRONLY)
        sys.stdin = open(0, encoding="utf-8", closefd=False)
    if sys.__stdout__ is None:
        _fill(1, os.O_RDONLY)
    if sys.__stderr__ is None:
        _fill(2, os.O_RDONLY)
    # What others have named must not end a list that this locale cannot encode.
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(_raw(1)), sys.__stdout__, "replace")
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Words(_raw(2)), sys.__stderr__, "backslashreplace")


def was_closed(descriptor: int) -> bool:
    """Whether the stream of this number was closed when we were started."""
    return descriptor in _closed


def give_up_output() -> None:
    """Whatever is still in stdout's buffer, and comes later, goes nowhere."""
    give_up(sys.stdout.fileno())


def give_up(descriptor: int) -> None:
    """The same for a descriptor."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _fill(descriptor: int, flags: int) -> None:
    """Something that cannot be used in the direction of the stream (EBADF), as before."""
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
