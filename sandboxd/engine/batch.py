# SPDX-License-Identifier: Apache-2.0
"""Files written before a run and read after the run, within the run's request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from sandboxd.core.entries import EntryKind, NewFile, ReadFile
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.errors import RequestTooLarge, SandboxdError, SandboxReleased

# Sum over all files of an answer, which is held in memory.
MAX_READ_BYTES = 4 << 20
_PIECE_BYTES = 256 << 10

Use = Callable[[], AbstractAsyncContextManager[SandboxFiles]]


async def write(use: Use, new: tuple[NewFile, ...]) -> None:
    """Write all files. Raises the errors of a file write; files before the error stay."""
    async with use() as files:
        for file in new:
            writer = await files.open_writer(file.path, mode=file.mode, parents=True)
            try:
                await writer.write(file.data)
                await writer.commit()
            finally:
                await writer.discard()


class Reading:
    """Files that a run's request reads before the release of the run's sandbox.

    `size_bytes` tells the request the sum of sizes; the read starts when the request calls `files`,
    after making room. Leaving the context without `files` cancels the read.
    """

    def __init__(self, paths: tuple[bytes, ...]) -> None:
        self.paths = paths
        self.is_over = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._size: asyncio.Future[int] = loop.create_future()
        self._is_wanted: asyncio.Future[bool] = loop.create_future()
        self._found: asyncio.Future[tuple[ReadFile, ...]] = loop.create_future()

    def __enter__(self) -> Reading:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _exc: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._want(is_wanted=False)

    async def size_bytes(self) -> int:
        """Return the upper bound of the sum of sizes, after the end of the run."""
        return await asyncio.shield(self._size)

    async def files(self) -> tuple[ReadFile, ...]:
        """Read the files now; return each file, or the error of the read."""
        self._want(is_wanted=True)
        return await asyncio.shield(self._found)

    def _want(self, *, is_wanted: bool) -> None:
        if not self._is_wanted.done():
            self._is_wanted.set_result(is_wanted)

    # -- the engine's

    async def read(self, use: Use) -> None:
        """Read the files of an ended run, once the request has room."""
        try:
            sizes = await _sizes(use, self.paths)
            self._size.set_result(sum(sizes))
            if await self._is_wanted:
                self._found.set_result(await _read(use, self.paths, sizes))
        finally:
            self.give_up()

    def give_up(self) -> None:
        """End without a read: the run's sandbox is gone, as after a restart of the daemon."""
        if not self._size.done():
            self._size.set_result(0)
        if not self._found.done():
            gone = SandboxReleased("cannot read the file: the run's sandbox is released")
            self._found.set_result(tuple(ReadFile(path, error=gone) for path in self.paths))
        self.is_over.set()


async def _sizes(use: Use, paths: tuple[bytes, ...]) -> list[int]:
    """Return the present size of each file in bytes; 0 where the read will fail."""
    found: list[int] = []
    left = MAX_READ_BYTES
    try:
        async with use() as files:
            for path in paths:
                found.append(await _size(files, path, left))
                left -= found[-1]
    except SandboxdError:
        # The read reports the error for each file.
        found += [0] * (len(paths) - len(found))
    return found


async def _size(files: SandboxFiles, path: bytes, left: int) -> int:
    try:
        entry = await files.stat(path)
    except SandboxReleased:
        raise
    except SandboxdError:
        return 0
    size = entry.size_bytes if entry.kind is EntryKind.FILE else 0
    return size if size <= left else 0


async def _read(use: Use, paths: tuple[bytes, ...], sizes: list[int]) -> tuple[ReadFile, ...]:
    found: list[ReadFile] = []
    try:
        async with use() as files:
            for path, size in zip(paths, sizes, strict=True):
                found.append(await _read_one(files, path, size))
    except SandboxdError as exc:
        found += [ReadFile(path, error=exc) for path in paths[len(found) :]]
    return tuple(found)


async def _read_one(files: SandboxFiles, path: bytes, size: int) -> ReadFile:
    try:
        reader = await files.open_reader(path)
        try:
            now = reader.entry.size_bytes
            if now > size:
                raise RequestTooLarge(
                    f"cannot read a file of {now} bytes with the answer: all of a run's together "
                    f"are at most {MAX_READ_BYTES}, and none grows meanwhile",
                    details={"maximum_bytes": MAX_READ_BYTES},
                )
            data = bytearray()
            # Never above the announced size: a program may write to the file meanwhile.
            while piece := await reader.read(len(data), min(_PIECE_BYTES, size - len(data))):
                data += piece
                if len(data) == size:
                    break
            return ReadFile(path, bytes(data), reader.entry.mode & 0o777)
        finally:
            await reader.close()
    except SandboxReleased:
        raise
    except SandboxdError as exc:
        return ReadFile(path, error=exc)
