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

from sandboxd.workspace import subvolumes

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
        # Of the name that something was last moved to.
        self.serial = 0

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
    Subvolumes of btrfs and read-only snapshots go, too. Raises OSError when something stays, for
    example on a read-only file system.
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
    try:
        _take(directory)
    except OSError as exc:
        if exc.errno != errno.EROFS:
            raise
        _make_writable(directory, ".", exc)
        _take(directory)


def _make_writable(directory: int, name: str, refusal: OSError) -> None:
    """Make a snapshot one that can be changed; raise the refusal where it is none of those."""
    top = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        if not subvolumes.make_writable(top):
            raise refusal
    finally:
        os.close(top)


def _take(directory: int) -> None:
    if os.getuid() == 0:
        os.fchown(directory, 0, 0)
    os.fchmod(directory, stat.S_IRWXU)


def _empty(top: int, pace: _Pace, outer: int | None = None) -> None:
    """Remove all that is in a directory. outer: where subvolumes in it are moved to; None = they
    are removed here."""
    while True:
        directories = []
        # btrfs shows what has been moved here since only after a rewind (Linux 6.5).
        os.lseek(top, 0, os.SEEK_SET)
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
            _flatten(top, name, pace, outer)


def _unlink(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _flatten(top: int, name: str, pace: _Pace, outer: int | None) -> None:
    """Empty one directory below the top: files unlinked, directories moved up."""
    try:
        directory = _open_directory(top, name)
    except FileNotFoundError:
        return
    try:
        if subvolumes.is_subvolume(directory, top):
            if outer is None:
                _remove_subvolume(top, name, directory, pace)
            else:
                _move_up(top, name, outer, pace)
            return
        _seal(directory)
        with os.scandir(directory) as entries:
            for entry in entries:
                pace.step()
                if entry.is_dir(follow_symlinks=False):
                    _move_up(directory, entry.name, top, pace)
                else:
                    _unlink(entry.name, directory)
    finally:
        os.close(directory)
    # Moving entries while reading a directory may skip some (readdir(3)): the caller comes again.
    with suppress(OSError):
        os.rmdir(name, dir_fd=top)


def _remove_subvolume(top: int, name: str, subvolume: int, pace: _Pace) -> None:
    """A subvolume below the top. Only others' links can be moved out of one (btrfs: EXDEV), so that
    it is emptied within itself where it cannot be destroyed as it is."""
    _seal(subvolume)
    try:
        subvolumes.destroy(top, name)
    except OSError as exc:
        # Others are in it, or we may not.
        if exc.errno not in (errno.ENOTEMPTY, errno.EPERM, errno.EACCES):
            raise
    else:
        return
    _empty(subvolume, pace, outer=top)
    os.rmdir(name, dir_fd=top)


def _move_up(directory: int, name: str, top: int, pace: _Pace) -> None:
    while True:
        pace.serial += 1
        target = f".removed-{pace.serial}"
        try:
            os.stat(target, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            try:
                os.rename(name, target, src_dir_fd=directory, dst_dir_fd=top)
            except FileNotFoundError:
                return
            except OSError as exc:
                if exc.errno == errno.EROFS:
                    # A read-only snapshot stays where it is.
                    _make_writable(directory, name, exc)
                # Another call has just given that name away.
                elif exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            else:
                return


def _open_directory(top: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=top)
    except PermissionError:
        # Not root, and the directory's mode shuts out its own owner.
        os.chmod(name, stat.S_IRWXU, dir_fd=top)
        return os.open(name, _DIRECTORY, dir_fd=top)
