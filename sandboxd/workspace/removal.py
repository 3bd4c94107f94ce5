# SPDX-License-Identifier: Apache-2.0
"""Removes a directory tree that a hostile program made.

Constant memory and descriptors at any depth: every subdirectory is first renamed into the top
one, so that no path and no recursion grows. Never follows a symbolic link. The tree's processes
are gone, but one of them may have passed a directory's descriptor to another sandbox: each is
closed to everybody before its entries are read, so nobody adds or swaps any meanwhile. Another
call may be at the same tree, that of an earlier daemon: what it took is gone, and that is all.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Protocol

# Directories of one level that are kept in memory at a time.
_BATCH = 10_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Stop(Protocol):
    """Says whether to stop; a threading.Event is one."""

    def is_set(self) -> bool:
        """Asked before each entry."""
        ...


class Stopped(Exception):
    """Raised when a removal was told to stop; what is left can be removed by another call."""


class _Enough(Exception):
    pass


class _Pace:
    def __init__(self, stop: Stop | None, most: int | None) -> None:
        self._stop = stop
        self._left = most

    def step(self) -> None:
        if self._stop is not None and self._stop.is_set():
            raise Stopped
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise _Enough


def remove_tree(path: str, stop: Stop | None = None, *, most: int | None = None) -> bool:
    """Remove `path` and all below it, at most so many entries; nothing happens where it does not
    exist. Returns whether nothing is left.

    stop: once set, ends this with Stopped: a hostile tree may take an hour.
    Raises OSError when something stays, for example on a read-only file system.
    """
    with suppress(FileNotFoundError):
        top = os.open(path, _DIRECTORY)
        try:
            _seal(top)
            _empty(top, _Pace(stop, most))
        except _Enough:
            return False
        finally:
            os.close(top)
        os.rmdir(path)
    return True


def _seal(directory: int) -> None:
    """Take the directory from its owner and everybody else: open(2) asks anew for each entry."""
    if os.getuid() == 0:
        os.fchown(directory, 0, 0)
    os.fchmod(directory, stat.S_IRWXU)


def _empty(top: int, pace: _Pace) -> None:
    serial = 0
    while True:
        directories = []
        with os.scandir(top) as entries:
            for entry in entries:
                pace.step()
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                    if len(directories) == _BATCH:
                        break
                else:
                    _unlink(entry.name, top)
        if not directories:
            return
        for name in directories:
            serial = _flatten(top, name, serial, pace)


def _unlink(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _flatten(top: int, name: str, serial: int, pace: _Pace) -> int:
    """Empty one directory below the top: files unlinked, directories moved up."""
    try:
        directory = _open_directory(top, name)
    except FileNotFoundError:
        return serial
    try:
        _seal(directory)
        with os.scandir(directory) as entries:
            for entry in entries:
                pace.step()
                if entry.is_dir(follow_symlinks=False):
                    serial = _move_up(directory, entry.name, top, serial)
                else:
                    _unlink(entry.name, directory)
    finally:
        os.close(directory)
    # Moving entries while reading a directory may skip some (readdir(3)): the caller comes again.
    with suppress(OSError):
        os.rmdir(name, dir_fd=top)
    return serial


def _move_up(directory: int, name: str, top: int, serial: int) -> int:
    while True:
        serial += 1
        target = f".removed-{serial}"
        try:
            os.stat(target, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            try:
                os.rename(name, target, src_dir_fd=directory, dst_dir_fd=top)
            except FileNotFoundError:
                return serial
            except OSError as exc:
                # Another call has just given that name away.
                if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            else:
                return serial


def _open_directory(top: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=top)
    except PermissionError:
        # Not root, and the directory's mode shuts out its own owner.
        os.chmod(name, stat.S_IRWXU, dir_fd=top)
        return os.open(name, _DIRECTORY, dir_fd=top)
