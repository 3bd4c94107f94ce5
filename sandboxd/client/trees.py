# SPDX-License-Identifier: Apache-2.0
"""Directories as tar streams, both ways.

Tar streams out of a sandbox are hostile: names that lead out of the directory are refused, and no
write follows a link.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterator

from sandboxd.client.below import Below
from sandboxd.errors import InvalidRequest
from sandboxd.osutil.descriptors import closing_fd, open_directory
from sandboxd.osutil.replacement import replace_file, umask

_PIECE_BYTES = 256 << 10
_PERMISSIONS = 0o777
_MAX_MTIME = 1 << 33
# Called with a skipped name and the reason; the name is as hostile as the tree.
LeaveOut = Callable[[str, str], None]


class Skipped:
    """Collector of skipped names; `said` has a line for each."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, name: str, reason: str) -> None:
        self.said.append(f"{name}: {reason}")


def pack(directory: str, leave_out: LeaveOut) -> Iterator[bytes]:
    """Pack a directory: files, directories and symbolic links, which are not followed."""
    yield from _pack_one(directory, ".", leave_out)
    for parent, directories, files in os.walk(directory, onerror=_raise):
        directories.sort()
        for name in sorted([*directories, *files]):
            path = os.path.join(parent, name)
            yield from _pack_one(path, os.path.relpath(path, directory), leave_out)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _raise(error: OSError) -> None:
    """Raise `error`: without this handler os.walk silently skips unreadable directories."""
    raise error


def _pack_one(path: str, name: str, leave_out: LeaveOut) -> Iterator[bytes]:
    found = os.stat(path) if name == "." else os.lstat(path)
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(found.st_mode) & _PERMISSIONS, int(found.st_mtime)
    if stat.S_ISREG(found.st_mode):
        with open(path, "rb") as file:
            info.size = found.st_size
            yield _header(info)
            left = found.st_size
            while left:
                piece = file.read(min(left, _PIECE_BYTES))
                if not piece:
                    raise OSError(f"{path} became shorter while it was read")
                left -= len(piece)
                yield piece
        yield bytes(-found.st_size % tarfile.BLOCKSIZE)
    elif stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
        yield _header(info)
    elif stat.S_ISLNK(found.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        yield _header(info)
    else:
        leave_out(path, "neither a file nor a directory nor a link")


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


class _Reader:
    """A file object over pieces of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; b"" only at the end."""
        if not self._rest:
            self._rest = next(self._pieces, b"")
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


def unpack(pieces: Iterator[bytes], directory: str, leave_out: LeaveOut) -> None:
    """Unpack a tar stream below `directory`, with modes and times. Raises InvalidRequest."""
    below = Below(directory)
    links: list[tuple[str, str]] = []
    directories: dict[str, tuple[int, int]] = {}
    mask = umask()
    try:
        # tarfile reads blocks by itself, so a short read is allowed.
        with tarfile.open(fileobj=_Reader(pieces), mode="r|") as archive:  # type: ignore[call-overload]
            for member in archive:
                path = inner_path(member.name)
                mode = member.mode & _PERMISSIONS & ~mask
                if member.isdir():
                    below.make_directory(path)
                    directories[path] = (mode, _seconds(member.mtime))
                elif member.isreg():
                    _unpack_file(archive, member, below.new_file(path, mode))
                elif member.issym():
                    links.append((path, member.linkname))
                else:
                    leave_out(member.name, "not a file, directory or link")
    except tarfile.TarError as exc:
        raise InvalidRequest(f"cannot unpack what the sandbox sent: {exc}") from exc
    for path, target in links:
        if stays_inside(path, target):
            below.link(path, target)
        else:
            leave_out(path, f"a link that leads to {target}")
    # Children first: a parent's mode may deny access, and each write changes the parent's mtime.
    for path in sorted(directories, reverse=True):
        below.settle(path, *directories[path])


def put(
    pieces: Iterator[bytes], target: str, leave_out: LeaveOut, *,
    is_directory: bool, mode: int, mtime: float,
) -> None:  # fmt: skip
    """Make or replace a file by its pieces, or make or fill a directory by a tar stream."""
    if not is_directory:
        replace_file(target, pieces, mode, mtime)
        return
    os.makedirs(target, exist_ok=True)
    unpack(pieces, os.path.abspath(target), leave_out)
    settle(target, mode, mtime)


def inner_path(name: str) -> str:
    """Return a member's name as a path below the directory. Raises InvalidRequest."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise InvalidRequest(f"cannot unpack {name!r}: it leads out of the directory")
    return "/".join(parts)


def stays_inside(path: str, target: str) -> bool:
    """Return whether a link at `path` leads to a place inside, whatever links surround it.

    A `..` after a name is refused: the name may be a link, unseen in the target's text.
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
        file.flush()
        seconds = _seconds(member.mtime)
        os.utime(file.fileno(), (seconds, seconds))


def _seconds(mtime: float) -> int:
    # NaN fails both comparisons.
    return int(mtime) if 0 <= mtime <= _MAX_MTIME else 0


def settle(directory: str, mode: int, mtime: float) -> None:
    """Set a directory's mode, less the umask, and mtime in seconds since 1970."""
    with closing_fd(open_directory(directory, follow=False)) as descriptor:
        os.utime(descriptor, (mtime, mtime))
        os.fchmod(descriptor, mode & ~umask())
