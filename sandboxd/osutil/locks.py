# SPDX-License-Identifier: Apache-2.0
"""Locks between processes, on files and directories."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


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
