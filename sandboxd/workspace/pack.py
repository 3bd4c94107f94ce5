# SPDX-License-Identifier: Apache-2.0
"""Packs a hostile tree into a tar stream (pax); fits ports.files.ArchiveReader.

Bounded in memory and descriptors whatever the tree is and does meanwhile: one directory is open at
a time, and of unread directories only the paths are kept. Vanished entries, sockets, FIFOs and
devices are left out; hard links become separate files; owners are root by number 0.
"""

from __future__ import annotations

import os
import stat
import tarfile
import time
from collections.abc import Generator

from sandboxd.core.entries import MAX_DEPTH, MAX_PATH_BYTES, EntryKind, join, shown
from sandboxd.engine.ports.files import MAX_READER_BYTES
from sandboxd.errors import FileConflict, SandboxdError
from sandboxd.osutil.descriptors import closing_fd
from sandboxd.workspace import beneath
from sandboxd.workspace.beneath import named, opened_home
from sandboxd.workspace.home_context import HomeContext, Spot
from sandboxd.workspace.listing import VANISHED
from sandboxd.workspace.transfer import PERMISSIONS

_PIECE_BYTES = 256 << 10
# Seconds of a call in a thread, for trees with many entries and little content.
_PIECE_SECONDS = 0.05
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)

_Blocks = Generator[bytes, None, None]


class Packer:
    """Packs a tree or a file: `open`, `read` until empty; `close` in any case."""

    def __init__(self, context: HomeContext, spot: Spot) -> None:
        self._context = context
        self._spot = spot
        self._blocks: _Blocks | None = None
        self._has_ended = False
        # Of paths of unread directories.
        self._waiting_bytes = 0

    @property
    def kept_bytes(self) -> int:
        return self._waiting_bytes

    async def open(self) -> None:
        """Check that the path can be packed, and read the beginning."""
        await self._context.run(self._open)

    async def read(self) -> bytes:
        piece = b""
        while not piece and not self._has_ended:
            piece = await self._context.run(self._read)
        return piece

    async def close(self) -> None:
        if self._blocks is not None:
            await self._context.run(self._blocks.close)

    # -- in a worker's thread

    def _open(self) -> None:
        self._blocks = self._pack()
        next(self._blocks)

    def _read(self) -> bytes:
        assert self._blocks is not None
        piece = bytearray()
        end = time.monotonic() + _PIECE_SECONDS
        while len(piece) < _PIECE_BYTES and time.monotonic() < end:
            block = next(self._blocks, None)
            if block is None:
                self._has_ended = True
                break
            piece += block
        return bytes(piece)

    def _pack(self) -> _Blocks:
        """Yield blocks of the stream; the first is empty and says that the path can be packed."""
        spot = self._spot
        with named("pack", spot.asked), opened_home(spot.top) as home:
            with beneath.opened(home, spot.path, os.O_PATH) as name:
                is_directory = stat.S_ISDIR(os.fstat(name).st_mode)
            if is_directory:
                with closing_fd(beneath.open_directory(home, spot.path)) as top:
                    yield b""
                    yield from self._tree(top)
            else:
                fd = beneath.open_regular(home, spot.path, self._context.uid)
                with closing_fd(fd):
                    yield b""
                    yield from _file(fd, spot.path.rpartition(b"/")[2])
            yield _END

    def _tree(self, top: int) -> _Blocks:
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            self._waiting_bytes -= len(path)
            try:
                fd = beneath.open_directory(top, path, follow=not path)
            except OSError as exc:
                if exc.errno not in VANISHED:
                    raise
                continue
            with closing_fd(fd), os.scandir(fd) as names:
                for item in names:
                    name = os.fsencode(item.name)
                    below = join(path, name)
                    is_far = len(below) > MAX_PATH_BYTES or below.count(b"/") >= MAX_DEPTH
                    if is_far or self._waiting_bytes > MAX_READER_BYTES:
                        raise FileConflict(f"cannot pack {shown(below)}: too deep or too much")
                    if (yield from self._entry(fd, name, below)):
                        waiting.append(below)
                        self._waiting_bytes += len(below)

    def _entry(self, directory: int, name: bytes, path: bytes) -> Generator[bytes, None, bool]:
        """Yield the blocks of one entry; return True for a directory, whose entries must follow."""
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            kind = EntryKind.of_mode(found.st_mode)
            if kind is EntryKind.FILE:
                with closing_fd(
                    beneath.open_regular(directory, name, self._context.uid, follow=False)
                ) as fd:
                    yield from _file(fd, path)
            elif kind is EntryKind.SYMLINK:
                target = os.readlink(name, dir_fd=directory)
                yield _header(path, found, tarfile.SYMTYPE, target=target)
            elif kind is EntryKind.DIRECTORY:
                yield _header(path, found, tarfile.DIRTYPE)
                return True
            else:
                yield b""
        except OSError as exc:
            if exc.errno not in VANISHED:
                raise
        except SandboxdError:
            # The entry changed kind since the stat.
            yield b""
        return False


def _file(fd: int, path: bytes) -> _Blocks:
    """Yield header and content, as long as at the first look: filled up or cut after a change."""
    found = os.fstat(fd)
    yield _header(path, found, tarfile.REGTYPE)
    offset = 0
    while offset < found.st_size:
        size = min(_PIECE_BYTES, found.st_size - offset)
        piece = os.pread(fd, size, offset)
        yield piece or bytes(size)
        offset += len(piece) or size
    yield bytes(-found.st_size % _BLOCK)


def _header(path: bytes, found: os.stat_result, kind: bytes, *, target: bytes = b"") -> bytes:
    info = tarfile.TarInfo(path.decode("utf-8", "surrogateescape"))
    info.type = kind
    info.mode = stat.S_IMODE(found.st_mode) & PERMISSIONS
    info.mtime = max(0, int(found.st_mtime))
    info.size = found.st_size if kind == tarfile.REGTYPE else 0
    info.linkname = target.decode("utf-8", "surrogateescape")
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
