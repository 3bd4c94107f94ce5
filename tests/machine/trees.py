# SPDX-License-Identifier: Apache-2.0
"""Directories as tar streams, written and read in pieces; used on both ends of a port."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

KEPT_DIRECTORIES = frozenset({"__pycache__"})


class ChunkReader(io.RawIOBase):
    """A readable stream over a function that returns the next piece, empty at the end."""

    def __init__(self, next_chunk: Callable[[], bytes]) -> None:
        self._next_chunk = next_chunk
        self._left = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left and not self._ended:
            self._left = self._next_chunk()
            self._ended = not self._left
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

    def drain(self) -> None:
        """Read on to the end, so that the next frame is not part of this stream."""
        while not self._ended:
            self._ended = not self._next_chunk()
        self._left = b""


class ChunkWriter(io.RawIOBase):
    """A writable stream over a function that takes pieces of at most `size` bytes."""

    def __init__(self, take_chunk: Callable[[bytes], None], size: int) -> None:
        self._take_chunk = take_chunk
        self._size = size
        self._pending = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pending += data
        while len(self._pending) >= self._size:
            self._take_chunk(bytes(self._pending[: self._size]))
            del self._pending[: self._size]
        return len(data)

    def flush(self) -> None:
        if not self.closed and self._pending:
            self._take_chunk(bytes(self._pending))
            self._pending.clear()


def pack(stream: io.RawIOBase, directory: Path, names: list[str] | None = None) -> None:
    """Write `directory`, or only `names` in it, as a tar stream of plain modes and no owners."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name in names if names is not None else sorted(os.listdir(directory)):
            archive.add(directory / name, name, recursive=names is None, filter=_plain)


def unpack(stream: ChunkReader, into: Path) -> dict[str, Any]:
    """Make `into` equal to the tar stream; an unchanged file is not touched.

    Compiled Python beside an unchanged source stays too. Raises OSError, tarfile.TarError.
    """
    into.mkdir(parents=True, exist_ok=True)
    into.chmod(0o755)
    changed = 0
    kept: set[Path] = set()
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                path = into / PurePosixPath(member.name)
                kept.update((path, *path.parents))
                changed += _unpack_member(archive, member, path)
    finally:
        stream.drain()
    return {"changed": changed, "removed": _remove_others(into, kept)}


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (member.isfile() or member.isdir() or member.issym()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> int:
    content = archive.extractfile(member) if member.isfile() else None
    data = content.read() if content is not None else b""
    if _is_same(member, data, path):
        return 0
    if path.is_symlink() or (path.exists() and path.is_dir() != member.isdir()):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        path.mkdir(exist_ok=True)
    elif member.issym():
        path.symlink_to(member.linkname)
        return 1
    else:
        path.unlink(missing_ok=True)
        path.write_bytes(data)
    path.chmod(member.mode)
    return 1


def _is_same(member: tarfile.TarInfo, data: bytes, path: Path) -> bool:
    if path.is_symlink():
        return member.issym() and os.readlink(path) == member.linkname
    if member.isdir():
        return path.is_dir()
    if not member.isfile() or not path.is_file():
        return False
    return path.stat().st_mode & 0o777 == member.mode and path.read_bytes() == data


def _remove_others(into: Path, kept: set[Path]) -> int:
    removed = 0
    for parent, directories, files in os.walk(into):
        for name in [*directories, *files]:
            path = Path(parent, name)
            if path in kept or name in KEPT_DIRECTORIES:
                continue
            removed += 1
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        directories[:] = [
            name
            for name in directories
            if name not in KEPT_DIRECTORIES and Path(parent, name) in kept
        ]
    return removed
