# SPDX-License-Identifier: Apache-2.0
"""What archives keep of a tree's directories is told while it is kept."""

from __future__ import annotations

import asyncio
import os
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandboxd.core.turns import Turn
from sandboxd.osutil.privileges import of_this_process
from sandboxd.workspace.files import HomeFiles
from sandboxd.workspace.home_context import HomeContext
from sandboxd.workspace.removal import remove_tree
from sandboxd.workspace.workers import Workers

COUNT = 300


async def _remove(path: str) -> None:
    await asyncio.to_thread(remove_tree, path, of_this_process())


async def _take(size: int) -> None:
    """There is always room."""


@asynccontextmanager
async def files_in(top: Path) -> AsyncIterator[HomeFiles]:
    home, staging = str(top / "home"), str(top / "staging")
    os.mkdir(home)
    os.mkdir(staging)
    workers = Workers("files", of_this_process(), threads=1)
    try:
        yield HomeFiles(
            HomeContext(home, staging, os.getuid(), workers, _remove, _take, Turn(0, "a"))
        )
    finally:
        workers.close()


async def test_a_reader_tells_of_directories_that_are_to_be_read(tmp_path: Path) -> None:
    async with files_in(tmp_path) as files:
        for number in range(COUNT):
            (tmp_path / "home" / f"{number:0200}").mkdir()
        reader = await files.open_archive_reader(b"")
        kept = [reader.kept_bytes]
        while await reader.read():
            kept.append(reader.kept_bytes)
        await reader.close()
    assert kept[0] == 0
    assert 100 * 200 < max(kept) <= COUNT * 200
    assert kept[-1] == 0


async def test_a_writer_tells_of_directories_whose_times_are_set_at_the_end(tmp_path: Path) -> None:
    async with files_in(tmp_path) as files:
        writer = await files.open_archive_writer(b"")
        assert writer.kept_bytes == 0
        for number in range(COUNT):
            info = tarfile.TarInfo(f"{number:0200}")
            info.type = tarfile.DIRTYPE
            await writer.write(info.tobuf(tarfile.PAX_FORMAT))
        assert writer.kept_bytes >= COUNT * 200
        await writer.finish()
        await writer.close()
    assert len(os.listdir(tmp_path / "home")) == COUNT
