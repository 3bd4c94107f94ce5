# SPDX-License-Identifier: Apache-2.0
"""Counts the disk use of a hostile tree as du(1) does, bounded in memory and descriptors.

Removed files that a process holds open count as well. An inode counts 4 KiB at least: a file system
has a fixed number of inodes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from sandboxd.core.entries import join
from sandboxd.osutil.descriptors import closing_fd, open_directory
from sandboxd.osutil.processes import owners
from sandboxd.osutil.tables import descriptor_tables
from sandboxd.workspace import beneath
from sandboxd.workspace.listing import VANISHED

_BLOCK = 512
BYTES_OF_AN_INODE = 4096
# Of all processes of a sandbox: one second of work.
_MAX_DESCRIPTORS = 1 << 18
# Inodes with several names that are remembered: beyond, each name counts by itself.
_MAX_SHARED = 100_000


_ANCHOR_BYTES = 2048
_MAX_ANCHORS = 256
# Of all paths of unread directories, with Python's overhead for each.
_MAX_WAITING_BYTES = 32 << 20
_PATH_BYTES = 64


@dataclass(frozen=True, slots=True)
class Counted:
    """Bytes on disk. obstacle: why counting stopped, in words; `used_bytes` is the least then."""

    used_bytes: int
    obstacle: str | None = None


class _Uncountable(Exception):
    """Raised where counting must stop; the text says why."""


class _Count:
    def __init__(self, most_names: int) -> None:
        self.used_bytes = 0
        self._waiting_bytes = 0
        self._names_left = most_names
        self._shared: set[int] = set()

    def keep(self, path: bytes) -> None:
        """Add an unread directory's path. Raises _Uncountable."""
        self._waiting_bytes += len(path) + _PATH_BYTES
        if self._waiting_bytes > _MAX_WAITING_BYTES:
            raise _Uncountable("a directory with too many directories in it")

    def let_go(self, path: bytes) -> None:
        """Take off a path that is about to be read."""
        self._waiting_bytes -= len(path) + _PATH_BYTES

    def add(self, found: os.stat_result) -> None:
        self._names_left -= 1
        if self._names_left < 0:
            raise _Uncountable("more names than so many bytes can have")
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if found.st_ino in self._shared:
                return
            if len(self._shared) < _MAX_SHARED:
                self._shared.add(found.st_ino)
        self.used_bytes += max(found.st_blocks * _BLOCK, BYTES_OF_AN_INODE)


def count(roots: Iterable[str], uid: int | None, most_names: int) -> Generator[None, None, Counted]:
    """Count bytes on disk below `roots`, and of nameless files that processes of `uid` hold open.

    A generator for a worker's slices. All roots are on the same file system; uid None: no nameless
    files. most_names: bound on the entries looked at. Raises OSError where a root cannot be read.
    """
    found = _Count(most_names)
    try:
        yield from _add_all(found, roots, uid)
    except _Uncountable as exc:
        return Counted(found.used_bytes, str(exc))
    return Counted(found.used_bytes)


def _add_all(count: _Count, roots: Iterable[str], uid: int | None) -> Generator[None, None, None]:
    device = 0
    for root in roots:
        with closing_fd(open_directory(root, follow=False)) as top:
            found = os.fstat(top)
            device = found.st_dev
            count.add(found)
            yield from _add_tree(top, count)
    if uid is not None:
        for nameless in _nameless(uid, device):
            if nameless is not None:
                count.add(nameless)
            yield


def _add_tree(top: int, count: _Count, depth: int = 0) -> Generator[None, None, None]:
    """Count one tree with one directory open at a time.

    Directories with long paths are walked from a descriptor of their own: no path may be longer
    than PATH_MAX.
    """
    if depth > _MAX_ANCHORS:
        raise _Uncountable("a tree that is too deep")
    waiting = [b""]
    count.keep(b"")
    while waiting:
        path = waiting.pop()
        count.let_go(path)
        try:
            fd = beneath.open_directory(top, path, follow=not path)
        except OSError as exc:
            if exc.errno in VANISHED:
                continue
            raise
        with closing_fd(fd):
            if len(path) > _ANCHOR_BYTES:
                yield from _add_tree(fd, count, depth + 1)
                continue
            for name in _add_entries(fd, count):
                yield
                if name is None:
                    continue
                below = join(path, name)
                count.keep(below)
                waiting.append(below)
        yield


def _add_entries(directory: int, count: _Count) -> Iterator[bytes | None]:
    """Count the entries of a directory; yield a subdirectory's name, None for any other entry."""
    with os.scandir(directory) as names:
        for item in names:
            with suppress(FileNotFoundError):
                found = item.stat(follow_symlinks=False)
                count.add(found)
                if stat.S_ISDIR(found.st_mode):
                    yield os.fsencode(item.name)
                    continue
            yield None


def _nameless(uid: int, device: int) -> Iterator[os.stat_result | None]:
    """Yield removed files of `device` that processes of `uid` hold open, each once.

    None for any other descriptor. Foreign descriptors can be seen with CAP_SYS_PTRACE alone. Raises
    _Uncountable.
    """
    seen, looks = set(), 0
    for number in _tables(uid):
        with suppress(OSError), os.scandir(f"/proc/{number}/fd") as descriptors:
            for item in descriptors:
                looks += 1
                if looks > _MAX_DESCRIPTORS:
                    raise _Uncountable(f"over {_MAX_DESCRIPTORS} open descriptors")
                yield None
                with suppress(OSError):
                    found = item.stat()
                    is_ours = found.st_dev == device and stat.S_ISREG(found.st_mode)
                    if is_ours and found.st_nlink == 0 and found.st_ino not in seen:
                        seen.add(found.st_ino)
                        yield found


def _tables(uid: int) -> Iterator[int]:
    for pid, has in owners():
        if has == uid:
            with suppress(OSError):
                yield from descriptor_tables(pid)
