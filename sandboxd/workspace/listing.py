# SPDX-License-Identifier: Apache-2.0
"""Lists a hostile tree, bounded in entries, memory and descriptors whatever the tree has."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sandboxd.core.entries import MAX_DEPTH, MAX_LISTED_BYTES, Entry, EntryKind, Listing, join
from sandboxd.osutil.descriptors import closing_fd
from sandboxd.workspace import beneath
from sandboxd.workspace.beneath import named, opened_home
from sandboxd.workspace.home_context import Spot

# Errors for a name that a changing tree had at the readdir(3) and no longer has.
VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES, errno.ESTALE)


@dataclass(eq=False, slots=True)
class _Found:
    """Entries so far. prefix_bytes: length of the prefix of each path in the answer."""

    limit: int
    prefix_bytes: int
    entries: list[Entry] = field(default_factory=list)
    _left: int = MAX_LISTED_BYTES

    @property
    def is_full(self) -> bool:
        return len(self.entries) == self.limit or self._left <= 0

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._left -= self.prefix_bytes + len(entry.path) + len(entry.target or b"")


def entries_below(spot: Spot, depth: int, limit: int) -> Generator[None, None, Listing]:
    """Return the entries below the directory at `spot`, `depth` levels deep.

    depth 0: the directory alone. A generator for run_steps. Raises what beneath.named raises. Only
    the top must exist: entries below may come and go meanwhile.
    """
    with named("list", spot.asked), opened_home(spot.top) as home:
        if depth == 0:
            with beneath.opened(home, spot.path, os.O_PATH) as fd:
                return Listing([Entry.of(spot.asked, os.fstat(fd))], truncated=False)
        with closing_fd(beneath.open_directory(home, spot.path)) as top:
            found = _Found(limit, len(spot.asked) + 1)
            truncated = yield from _read(top, b"", found)
            # Breadth first, so that a cut leaves out the deepest entries.
            waiting, too_deep = deque(_directories(found.entries, 0, depth - 1)), False
            while waiting and not truncated:
                below, levels = waiting.popleft()
                if below.count(b"/") >= MAX_DEPTH:
                    too_deep = True
                    continue
                begin = len(found.entries)
                try:
                    truncated = yield from _read(top, below, found)
                except OSError as exc:
                    if exc.errno not in VANISHED:
                        raise
                waiting.extend(_directories(found.entries, begin, levels - 1))
    whole = [replace(entry, path=join(spot.asked, entry.path)) for entry in found.entries]
    return Listing(sorted(whole, key=lambda entry: entry.path), truncated or too_deep)


def _directories(found: list[Entry], begin: int, levels: int) -> list[tuple[bytes, int]]:
    if levels <= 0:
        return []
    new = found[begin:]
    return [(entry.path, levels) for entry in new if entry.kind is EntryKind.DIRECTORY]


def _read(top: int, path: bytes, found: _Found) -> Generator[None, None, bool]:
    """Add the entries of one directory; return whether entries are left beyond the limit."""
    with closing_fd(beneath.open_directory(top, path, follow=not path)) as directory:
        with os.scandir(directory) as names:
            for item in names:
                if found.is_full:
                    return True
                yield
                name = os.fsencode(item.name)
                below = join(path, name)
                with suppress(FileNotFoundError):
                    found.add(_entry(directory, name, below))
    return False


def _entry(directory: int, name: bytes, path: bytes) -> Entry:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    entry = Entry.of(path, found)
    if entry.kind is EntryKind.SYMLINK:
        with suppress(OSError):
            return Entry.of(path, found, os.readlink(name, dir_fd=directory))
    return entry
