# SPDX-License-Identifier: Apache-2.0
"""Locks between processes, on files and directories."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def open_lock(path: str) -> int:
    """Open a file for a lock, made with mode 0600 where missing. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def locked(fd: int, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock of an open file or directory (flock(2)); the descriptor is closed at the end.

    Raises BlockingIOError where another process has the lock, unless the call waits.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


@contextmanager
def locked_file(path: str, *, waits: bool = True) -> Iterator[int]:
    """Hold the lock of the file that `path` names, made where missing; the value is its descriptor.

    An earlier holder may have removed the file between open(2) and flock(2): then the file is made
    anew. Raises OSError, BlockingIOError as `locked`.
    """
    while True:
        fd = open_lock(path)
        with locked(fd, waits=waits):
            if not _is_at(fd, path):
                continue
            yield fd
            return


def _is_at(fd: int, path: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.stat(path))
    return False
