# SPDX-License-Identifier: Apache-2.0
"""The files of a sandbox's home and /tmp, for the API; fits ports.files.SandboxFiles.

A tree to be removed is first renamed into the staging directory: gone at once from the sandbox,
whose programs cannot disturb the removal. The next daemon removes trees left in staging.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager

from sandboxd.core.entries import Entry, Listing
from sandboxd.core.names import new_id
from sandboxd.osutil.descriptors import path_of
from sandboxd.workspace import beneath, listing
from sandboxd.workspace.beneath import WITH_PARENTS, named, opened, opened_home, opened_parent
from sandboxd.workspace.home_context import HomeContext, Spot
from sandboxd.workspace.pack import Packer
from sandboxd.workspace.transfer import Reader, Writer
from sandboxd.workspace.unpack import Unpacker

_DIRECTORY_BYTES = 4096


class HomeFiles:
    """The files of a sandbox. Blocking work runs in the context's workers, as the sandbox's uid."""

    def __init__(self, context: HomeContext) -> None:
        self._context = context

    async def stat(self, path: bytes) -> Entry:
        return await self._context.run(self._stat, self._context.locate(path))

    async def open_reader(self, path: bytes) -> Reader:
        reader = Reader(self._context, self._context.locate(path))
        async with _undone(reader.close):
            await reader.open()
        return reader

    async def open_writer(
        self, path: bytes, *, mode: int | None, parents: bool, mtime: int | None = None
    ) -> Writer:
        writer = Writer(self._context, self._named(path), mode, mtime)
        async with _undone(writer.discard):
            await writer.open(parents=parents)
        return writer

    async def make_directory(self, path: bytes, *, mode: int, parents: bool) -> None:
        spot = self._named(path)
        await self._context.take(_DIRECTORY_BYTES)
        await self._context.run(self._make_directory, spot, mode, parents)

    async def rename(self, path: bytes, to: bytes) -> None:
        await self._context.run(self._rename, self._named(path), self._named(to))

    async def remove(self, path: bytes) -> None:
        moved = await self._context.run(self._take_away, self._named(path))
        if moved is not None:
            await self._context.remove(moved)

    async def list(self, path: bytes, *, depth: int, limit: int) -> Listing:
        steps = listing.entries_below(self._context.locate(path), depth, limit)
        return await self._context.run_steps(steps)

    async def open_archive_reader(self, path: bytes) -> Packer:
        packer = Packer(self._context, self._context.locate(path))
        async with _undone(packer.close):
            await packer.open()
        return packer

    async def open_archive_writer(self, path: bytes) -> Unpacker:
        unpacker = Unpacker(self._context, self._context.locate(path))
        async with _undone(unpacker.close):
            await unpacker.open()
        return unpacker

    def _named(self, path: bytes) -> Spot:
        spot = self._context.locate(path)
        spot.check_has_name()
        return spot

    # -- in a worker's thread

    def _stat(self, spot: Spot) -> Entry:
        with (
            named("look at", spot.asked),
            opened_home(spot.top) as home,
            opened(home, spot.path, os.O_PATH) as fd,
        ):
            return Entry.of(spot.asked, os.fstat(fd))

    def _make_directory(self, spot: Spot, mode: int, parents: bool) -> None:
        with (
            named("make directory", spot.asked, missing=WITH_PARENTS),
            opened_home(spot.top) as home,
        ):
            if parents:
                beneath.make_directories(home, spot.path, mode)
                return
            with opened_parent(home, spot.path) as (parent, name):
                beneath.make_directory(parent, name, mode)

    def _rename(self, spot: Spot, to: Spot) -> None:
        with ExitStack() as close:
            with named("rename to", to.asked):
                new_home = close.enter_context(opened_home(to.top))
                new_parent, new_name = close.enter_context(opened_parent(new_home, to.path))
            with (
                named("rename", spot.asked),
                opened_home(spot.top) as home,
                opened_parent(home, spot.path) as (parent, name),
            ):
                os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent)

    def _take_away(self, spot: Spot) -> str | None:
        """Unlink a file; rename a tree into staging and return the new path."""
        with (
            named("delete", spot.asked),
            opened_home(spot.top) as home,
            opened_parent(home, spot.path) as (parent, name),
        ):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                os.unlink(name, dir_fd=parent)
                return None
            if not self._context.workers.is_root:
                # Renaming a directory writes its `..` entry, for which the directory's own mode
                # counts.
                with opened(parent, name, os.O_PATH | os.O_DIRECTORY, follow=False) as fd:
                    os.chmod(path_of(fd), stat.S_IRWXU)
            moved = os.path.join(self._context.staging, new_id())
            os.rename(name, moved, src_dir_fd=parent)
            # A program may have swapped the directory since the stat.
            if stat.S_ISDIR(os.lstat(moved).st_mode):
                return moved
            os.unlink(moved)
            return None


@asynccontextmanager
async def _undone(undo: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Call `undo` when the block fails or is cancelled."""
    try:
        yield
    except BaseException:
        await undo()
        raise
