# SPDX-License-Identifier: Apache-2.0
"""Removes a directory tree that a hostile program made.

Constant memory and descriptors at any depth: every subdirectory is first renamed into the top
one, so that no path and no recursion grows. Never follows a symbolic link. The tree's processes
are gone, but one of them may have passed a directory's descriptor to another sandbox: each is
closed to everybody before its entries are read, so nobody adds or swaps any meanwhile.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from threading import Event

# Directories of one level that are kept in memory at a time.
_BATCH = 10_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Stopped(Exception):
    """Raised when a removal was told to stop; what is left can be removed by another call."""


def remove_tree(path: str, stop: Event | None = None) -> None:
    """Remove `path` and all below it; nothing happens where it does not exist.

    stop: once set, ends this with Stopped: a hostile tree may take an hour.
    Raises OSError when something stays, for example on a read-only file system.
    """
    with suppress(FileNotFoundError):
        top = os.open(path, _DIRECTORY)
        try:
            _seal(top)
            _empty(top, stop)
        finally:
            os.close(top)
        os.rmdir(path)


def _seal(directory: int) -> None:
    """Take the directory from its owner and everybody else: open(2) asks anew for each entry."""
    if os.getuid() == 0:
        os.fchown(directory, 0, 0)
    os.fchmod(directory, stat.S_IRWXU)


def _empty(top: int, stop: Event | None) -> None:
    serial = 0
    while True:
        directories = []
        with os.scandir(top) as entries:
            for entry in entries:
                _check(stop)
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                    if len(directories) == _BATCH:
                        break
                else:
                    os.unlink(entry.name, dir_fd=top)
        if not directories:
            return
        for name in directories:
            serial = _flatten(top, name, serial, stop)


def _check(stop: Event | None) -> None:
    if stop is not None and stop.is_set():
        raise Stopped


def _flatten(top: int, name: str, serial: int, stop: Event | None) -> int:
    """Empty one directory below the top: files unlinked, directories moved up."""
    directory = _open_directory(top, name)
    try:
        _seal(directory)
        _check(stop)
        with os.scandir(directory) as entries:
            for entry in entries:
                _check(stop)
                if entry.is_dir(follow_symlinks=False):
                    serial = _move_up(directory, entry.name, top, serial)
                else:
                    os.unlink(entry.name, dir_fd=directory)
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
            os.rename(name, target, src_dir_fd=directory, dst_dir_fd=top)
            return serial


def _open_directory(top: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=top)
    except PermissionError:
        # Not root, and the directory's mode shuts out its own owner.
        os.chmod(name, stat.S_IRWXU, dir_fd=top)
        return os.open(name, _DIRECTORY, dir_fd=top)
