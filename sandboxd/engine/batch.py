# SPDX-License-Identifier: Apache-2.0
"""Files written before a run and read after it, in the run's own request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from sandboxd.core.entries import NewFile, ReadFile
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.errors import RequestTooLarge, SandboxdError, SandboxReleased

# All files of one answer together, which is in memory whole.
MAX_READ_BYTES = 4 << 20
_PIECE_BYTES = 256 << 10

Use = Callable[[], AbstractAsyncContextManager[SandboxFiles]]


async def write(use: Use, new: tuple[NewFile, ...]) -> None:
    """Write all files. Raises what writing one raises; those before it are there."""
    async with use() as files:
        for file in new:
            writer = await files.open_writer(file.path, mode=file.mode, parents=True)
            try:
                await writer.write(file.data)
                await writer.commit()
            finally:
                await writer.discard()


async def read(use: Use, paths: tuple[bytes, ...]) -> tuple[ReadFile, ...]:
    """Each file, or the error that reading it is."""
    found: list[ReadFile] = []
    left = MAX_READ_BYTES
    try:
        async with use() as files:
            for path in paths:
                found.append(await _read_one(files, path, left))
                left -= len(found[-1].data)
    except SandboxdError as exc:
        found += [ReadFile(path, error=exc) for path in paths[len(found) :]]
    return tuple(found)


async def _read_one(files: SandboxFiles, path: bytes, left: int) -> ReadFile:
    try:
        reader = await files.open_reader(path)
        try:
            data = bytearray()
            while piece := await reader.read(len(data), _PIECE_BYTES):
                data += piece
                if len(data) > left:
                    raise RequestTooLarge(
                        f"cannot read a file of {reader.entry.size_bytes} bytes with the answer: "
                        f"all of a run's together are at most {MAX_READ_BYTES}",
                        details={"maximum_bytes": MAX_READ_BYTES},
                    )
            return ReadFile(path, bytes(data), reader.entry.mode & 0o777)
        finally:
            await reader.close()
    except SandboxReleased:
        raise
    except SandboxdError as exc:
        return ReadFile(path, error=exc)


def not_read(paths: tuple[bytes, ...]) -> tuple[ReadFile, ...]:
    """For a run whose sandbox is gone, as after a restart of the daemon."""
    gone = SandboxReleased("cannot read the file: the run's sandbox is released")
    return tuple(ReadFile(path, error=gone) for path in paths)
