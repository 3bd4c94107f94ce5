# SPDX-License-Identifier: Apache-2.0
"""Removes a directory tree that a hostile program made.

Constant memory and descriptors at any depth: every subdirectory is first renamed into the top
directory, so that no path and no recursion grows. Never follows a symbolic link. The tree's
processes are gone, but may have passed a directory's descriptor to another sandbox: each directory
is closed to all uids but root before its entries are read, so that no entry is added or swapped
meanwhile. A call of an earlier daemon may work on the same tree: entries that vanish are no error.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Protocol

from sandboxd.osutil.descriptors import closing_fd, open_directory
from sandboxd.osutil.files import remove_file
from sandboxd.osutil.privileges import Privileges
from sandboxd.workspace import subvolumes

# Directories of one level kept in memory at a time.
_BATCH = 10_000


class Stop(Protocol):
    """Says whether to stop; a threading.Event fits."""

    def is_set(self) -> bool:
        """Return whether to stop; called before each entry."""


class Stopped(Exception):
    """Raised when a removal was told to stop; a later call can remove the rest."""


class _Enough(Exception):
    pass


class _Work:
    """One removal: how much of it is left, and with whose rights it is done."""

    def __init__(self, stop: Stop | None, most: int | None, *, is_root: bool) -> None:
        self._stop = stop
        self._left = most
        self.is_root = is_root
        # Number in the last name that a directory was moved to.
        self.serial = 0

    def step(self) -> None:
        if self._stop is not None and self._stop.is_set():
            raise Stopped
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise _Enough


def remove_tree(
    path: str, privileges: Privileges, stop: Stop | None = None, *, most: int | None = None
) -> bool:
    """Remove `path` and all below, at most `most` entries; return whether all of the tree is gone.

    Fine where the path does not exist. stop: once set, the call raises Stopped: a hostile tree may
    take an hour. Subvolumes of btrfs and read-only snapshots go, too. Raises OSError for what
    cannot be removed, for example on a read-only file system.
    """
    with suppress(FileNotFoundError):
        with closing_fd(open_directory(path, follow=False)) as top:
            work = _Work(stop, most, is_root=privileges.is_root)
            try:
                _seal(top, work)
                _empty(top, work)
            except _Enough:
                return False
        os.rmdir(path)
    return True


def _seal(directory: int, work: _Work) -> None:
    """Make the directory root's alone, since open(2) checks permissions for each entry."""
    try:
        _take(directory, work)
    except OSError as exc:
        if exc.errno != errno.EROFS:
            raise
        _make_writable(directory, ".", exc)
        _take(directory, work)


def _make_writable(directory: int, name: str, refusal: OSError) -> None:
    """Make a read-only snapshot writable; raise `refusal` where `name` is no read-only snapshot."""
    with closing_fd(open_directory(name, above=directory, follow=False)) as top:
        if not subvolumes.make_writable(top):
            raise refusal


def _take(directory: int, work: _Work) -> None:
    if work.is_root:
        os.fchown(directory, 0, 0)
    os.fchmod(directory, stat.S_IRWXU)


def _empty(top: int, work: _Work, outer: int | None = None) -> None:
    """Remove all entries. outer: where subvolumes are moved to; None = they are removed here."""
    while True:
        directories = []
        # btrfs shows entries moved here since only after a rewind (Linux 6.5).
        os.lseek(top, 0, os.SEEK_SET)
        with os.scandir(top) as entries:
            for entry in entries:
                work.step()
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                    if len(directories) == _BATCH:
                        break
                else:
                    remove_file(entry.name, above=top)
        if not directories:
            return
        for name in directories:
            _flatten(top, name, work, outer)


def _flatten(top: int, name: str, work: _Work, outer: int | None) -> None:
    """Empty a directory below the top: unlink files, move directories up."""
    try:
        directory = _open_directory(top, name)
    except FileNotFoundError:
        return
    try:
        if subvolumes.is_subvolume(directory, top):
            if outer is None:
                _remove_subvolume(top, name, directory, work)
            else:
                _move_up(top, name, outer, work)
            return
        _seal(directory, work)
        with os.scandir(directory) as entries:
            for entry in entries:
                work.step()
                if entry.is_dir(follow_symlinks=False):
                    _move_up(directory, entry.name, top, work)
                else:
                    remove_file(entry.name, above=directory)
    finally:
        os.close(directory)
    # Moving entries while reading a directory may skip some (readdir(3)): the caller comes again.
    with suppress(OSError):
        os.rmdir(name, dir_fd=top)


def _remove_subvolume(top: int, name: str, subvolume: int, work: _Work) -> None:
    """Remove a subvolume below the top.

    Only links to subvolumes can be moved out of a subvolume (btrfs: EXDEV), so a subvolume that
    cannot be destroyed as a whole is emptied within itself.
    """
    _seal(subvolume, work)
    try:
        subvolumes.destroy(top, name)
    except OSError as exc:
        # Subvolumes are below, or the daemon lacks the right.
        if exc.errno not in (errno.ENOTEMPTY, errno.EPERM, errno.EACCES):
            raise
    else:
        return
    _empty(subvolume, work, outer=top)
    os.rmdir(name, dir_fd=top)


def _move_up(directory: int, name: str, top: int, work: _Work) -> None:
    while True:
        work.serial += 1
        target = f".removed-{work.serial}"
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
                # A concurrent call has just used the name.
                elif exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            else:
                return


def _open_directory(top: int, name: str) -> int:
    try:
        return open_directory(name, above=top, follow=False)
    except PermissionError:
        # Without root, a directory's mode shuts out the owner as well.
        os.chmod(name, stat.S_IRWXU, dir_fd=top)
        return open_directory(name, above=top, follow=False)
