# SPDX-License-Identifier: Apache-2.0
"""Reads a file of a sandbox's home, and writes one.

A new file is made in the staging directory and renamed to the final path once whole.
"""

from __future__ import annotations

import os
import stat

from sandboxd.core.entries import Entry
from sandboxd.core.names import new_id
from sandboxd.osutil.files import write_all
from sandboxd.workspace import beneath
from sandboxd.workspace.beneath import WITH_PARENTS, named, opened_home, opened_parent
from sandboxd.workspace.home_context import HomeContext, Spot

DEFAULT_MODE = 0o644
PERMISSIONS = 0o777
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Reader:
    """An open regular file; fits ports.files.FileReader. `close` in any case."""

    entry: Entry

    def __init__(self, context: HomeContext, spot: Spot) -> None:
        self._context = context
        self._spot = spot
        self._fd = -1

    async def open(self) -> None:
        """Open the file and set `entry`."""
        await self._context.run(self._open)

    async def read(self, offset: int, size: int) -> bytes:
        return await self._context.run(os.pread, self._fd, size, offset)

    async def close(self) -> None:
        """Close in a worker: the last descriptor of a removed file frees the file's blocks."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            await self._context.run(os.close, fd)

    def _open(self) -> None:
        spot = self._spot
        with named("read", spot.asked), opened_home(spot.top) as home:
            self._fd = beneath.open_regular(home, spot.path, self._context.uid)
            self.entry = Entry.of(spot.asked, os.fstat(self._fd))


class Writer:
    """A file in staging; fits ports.files.FileWriter."""

    def __init__(
        self, context: HomeContext, spot: Spot, mode: int | None, mtime: int | None = None
    ) -> None:
        self._context = context
        self._spot = spot
        self._mode = mode
        self._mtime = mtime
        self._temporary = os.path.join(context.staging, new_id())
        self._fd = -1

    async def open(self, *, parents: bool) -> None:
        """Make the file, once the path is known to be usable for a file."""
        await self._context.take(0)
        await self._context.run(self._open, parents)

    async def write(self, data: bytes) -> None:
        await self._context.take(len(data))
        await self._context.run(self._write, data)

    async def commit(self) -> bool:
        return await self._context.run(self._commit)

    async def discard(self) -> None:
        if self._fd >= 0:
            await self._context.run(self._discard)

    def _open(self, parents: bool) -> None:
        spot = self._spot
        with named("write", spot.asked, missing=WITH_PARENTS), opened_home(spot.top) as home:
            parent = spot.path.rpartition(b"/")[0]
            if parents and parent:
                beneath.make_directories(home, parent, 0o755)
            self._replaced(home)
            self._fd = os.open(self._temporary, _NEW, 0o600)

    def _write(self, data: bytes) -> None:
        with named("write", self._spot.asked):
            write_all(self._fd, data)

    def _commit(self) -> bool:
        spot = self._spot
        with named("write", spot.asked, missing=WITH_PARENTS), opened_home(spot.top) as home:
            replaced = self._replaced(home)
            mode = self._mode
            if mode is None:
                mode = DEFAULT_MODE if replaced is None else replaced.st_mode & PERMISSIONS
            os.fchmod(self._fd, mode)
            if self._mtime is not None:
                os.utime(self._fd, (self._mtime, self._mtime))
            with opened_parent(home, spot.path) as (parent, name):
                os.rename(self._temporary, name, dst_dir_fd=parent)
        self._close()
        return replaced is None

    def _replaced(self, home: int) -> os.stat_result | None:
        """Return the stat of the replaced file, None for none or a link. Raises FileConflict."""
        with opened_parent(home, self._spot.path) as (parent, name):
            try:
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                return None
        if stat.S_ISLNK(found.st_mode):
            return None
        beneath.check_regular(found, self._spot.asked)
        return found

    def _discard(self) -> None:
        self._close()
        os.unlink(self._temporary)

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1
