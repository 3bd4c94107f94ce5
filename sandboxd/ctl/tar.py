# SPDX-License-Identifier: Apache-2.0
"""Directories as tar streams, both ways. What comes out of a sandbox is hostile: names that lead
elsewhere are refused, and nothing is written through a link."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator

from sandboxd.ctl.below import Below
from sandboxd.ctl.exits import say
from sandboxd.ctl.show import printable
from sandboxd.errors import InvalidRequest

_PIECE_BYTES = 256 << 10


def pack(directory: str) -> Iterator[bytes]:
    """The directory's contents; links as links, and only files, directories and links."""
    for parent, directories, files in os.walk(directory):
        directories.sort()
        for name in sorted([*directories, *files]):
            path = os.path.join(parent, name)
            yield from _pack_one(path, os.path.relpath(path, directory))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _pack_one(path: str, name: str) -> Iterator[bytes]:
    found = os.lstat(path)
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(found.st_mode) & 0o777, int(found.st_mtime)
    if stat.S_ISREG(found.st_mode):
        info.size = found.st_size
        yield _header(info)
        yield from _pack_file(path, found.st_size)
    elif stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
        yield _header(info)
    elif stat.S_ISLNK(found.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        yield _header(info)
    else:
        say(f"leaving out {printable(path)}: neither a file nor a directory nor a link")


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _pack_file(path: str, size: int) -> Iterator[bytes]:
    left = size
    with open(path, "rb") as file:
        while left:
            piece = file.read(min(left, _PIECE_BYTES))
            if not piece:
                raise OSError(f"{path} became shorter while it was read")
            left -= len(piece)
            yield piece
    yield bytes(-size % tarfile.BLOCKSIZE)


class _Reader:
    """Pieces of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; nothing only at the end."""
        if not self._rest:
            self._rest = next(self._pieces, b"")
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


def unpack(pieces: Iterator[bytes], directory: str) -> None:
    """Write what a tar stream holds below `directory`. Raises InvalidRequest."""
    below = Below(directory)
    links: list[tuple[str, str]] = []
    try:
        # tarfile reads in blocks of its own and so may be given less than it asked for.
        with tarfile.open(fileobj=_Reader(pieces), mode="r|") as archive:  # type: ignore[call-overload]
            for member in archive:
                path = inner_path(member.name)
                if member.isdir():
                    below.make_directory(path)
                elif member.isreg():
                    _unpack_file(archive, member, below.new_file(path, member.mode & 0o777))
                elif member.issym():
                    links.append((path, member.linkname))
                else:
                    say(f"leaving out {printable(member.name)}: not a file, directory or link")
    except tarfile.TarError as exc:
        raise InvalidRequest(f"cannot unpack what the sandbox sent: {exc}") from exc
    for path, target in links:
        if stays_inside(path, target):
            below.link(path, target)
        else:
            say(f"leaving out the link {printable(path)}: it leads to {printable(target)}")


def inner_path(name: str) -> str:
    """A member's name as a path below the directory. Raises InvalidRequest."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise InvalidRequest(f"cannot unpack {printable(name)!r}: it leads out of the directory")
    return "/".join(parts)


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` leads to a place inside, whatever other such links there are.

    A `..` behind a name could be one behind another link, which the text of it does not tell.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    is_plain = ".." not in parts[ups:] and "\0" not in target
    return is_plain and not target.startswith("/") and ups <= path.count("/")


def _unpack_file(archive: tarfile.TarFile, member: tarfile.TarInfo, descriptor: int) -> None:
    source = archive.extractfile(member)
    assert source is not None
    with open(descriptor, "wb") as file:
        while piece := source.read(_PIECE_BYTES):
            file.write(piece)
