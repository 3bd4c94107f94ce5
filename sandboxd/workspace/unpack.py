# SPDX-License-Identifier: Apache-2.0
"""Unpacks a tar stream into a sandbox's home; fits ports.files.ArchiveWriter.

Each member is made in the staging directory and renamed to its path. Names that lead out, devices,
FIFOs and sparse files are refused; owners and the setuid, setgid and sticky bits are left out. A
symbolic link is made wherever it leads: a program inside could make the same link, and no path is
resolved through a link that leads out. Directories get their modes and times at the end, after
their last member.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Generator
from contextlib import suppress

from sandboxd.core.entries import clean_path, join, shown
from sandboxd.core.names import new_id
from sandboxd.engine.ports.files import MAX_WRITER_BYTES
from sandboxd.errors import InvalidRequest, SandboxdError
from sandboxd.osutil.descriptors import closing_fd, path_of
from sandboxd.osutil.files import remove_file, write_all
from sandboxd.workspace import beneath
from sandboxd.workspace.beneath import named, opened, opened_home, opened_parent
from sandboxd.workspace.home_context import HomeContext, Spot
from sandboxd.workspace.tar_stream import TarStream
from sandboxd.workspace.transfer import PERMISSIONS

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MAX_MTIME = 1 << 33
# Bytes of memory for a directory until the end, beside the name.
_KEPT_BYTES = 200


class Unpacker:
    """Unpacks a stream: `open`, `write` as often as need be, `finish`; `close` in any case."""

    def __init__(self, context: HomeContext, spot: Spot) -> None:
        self._context = context
        self._spot = spot
        self._stream = TarStream()
        self._temporary = os.path.join(context.staging, new_id())
        self._file: tuple[int, bytes, tarfile.TarInfo] | None = None
        # Mode and time of each directory that was a member.
        self._directories: dict[bytes, tuple[int, int]] = {}
        self._kept_bytes = 0
        self._unpacked = 0

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    async def open(self) -> None:
        """Check that the path is a directory to unpack into."""
        await self._context.run(self._check)

    async def write(self, data: bytes) -> None:
        await self._context.take(len(data))
        await self._counting_what_stays(self._feed(data))

    async def finish(self) -> None:
        await self._counting_what_stays(self._finish())

    async def close(self) -> None:
        await self._context.run(self._close)

    async def _counting_what_stays(self, steps: Generator[None, None, None]) -> None:
        """Run `steps`; add the number of members unpacked so far to an error."""
        try:
            await self._context.run_steps(steps)
        except SandboxdError as exc:
            exc.details["members_unpacked"] = self._unpacked
            exc.hint = exc.hint or f"{self._unpacked} members before it are unpacked, and stay"
            raise

    # -- in a worker's thread

    def _check(self) -> None:
        with named("unpack into", self._spot.asked), opened_home(self._spot.top) as home:
            os.close(beneath.open_directory(home, self._spot.path))

    def _feed(self, data: bytes) -> Generator[None, None, None]:
        with opened_home(self._spot.top) as home:
            for event in self._stream.feed(data):
                if isinstance(event, tarfile.TarInfo):
                    self._complete(home)
                    self._begin(home, event)
                elif self._file is not None:
                    with named("unpack", self._file[1]):
                        write_all(self._file[0], event)
                yield

    def _finish(self) -> Generator[None, None, None]:
        self._stream.check_complete()
        with opened_home(self._spot.top) as home:
            self._complete(home)
            # Deepest first: a parent's mode may then shut off the way below.
            for path in sorted(self._directories, reverse=True):
                self._settle(home, path, *self._directories[path])
                yield

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file[0])
            self._file = None
        remove_file(self._temporary)

    def _begin(self, home: int, member: tarfile.TarInfo) -> None:
        path = self._target(member.name, "name")
        with named("unpack", path):
            parent = path.rpartition(b"/")[0]
            if parent:
                beneath.make_directories(home, parent, 0o755)
            if member.isdir():
                # A mode without owner's write permission would stop the members that follow.
                if path:
                    beneath.make_directories(home, path, member.mode & PERMISSIONS | 0o700)
                self._keep(path, member)
                self._unpacked += 1
            elif member.issym():
                os.symlink(_link_target(path, member.linkname), self._temporary)
                self._put(home, path)
            elif member.islnk():
                self._link(home, self._target(member.linkname, "link"))
                self._put(home, path)
            elif member.isreg() and member.type != tarfile.GNUTYPE_SPARSE:
                self._file = (os.open(self._temporary, _NEW, 0o600), path, member)
            else:
                raise InvalidRequest.field(
                    "body", f"member {shown(path)}: neither file, directory nor link, or sparse"
                )

    def _complete(self, home: int) -> None:
        """Rename the previous file, now whole, to the member's path."""
        if self._file is None:
            return
        fd, path, member = self._file
        with named("unpack", path):
            os.fchmod(fd, member.mode & PERMISSIONS)
            seconds = _seconds(member)
            os.utime(fd, (seconds, seconds))
            self._put(home, path)
        self._file = None
        os.close(fd)

    def _keep(self, path: bytes, member: tarfile.TarInfo) -> None:
        # The home and /tmp keep mode and time; a directory past the bound keeps the mode of the
        # making.
        if path and self._kept_bytes < MAX_WRITER_BYTES:
            self._directories[path] = (member.mode & PERMISSIONS, _seconds(member))
            self._kept_bytes += len(path) + _KEPT_BYTES

    def _settle(self, home: int, path: bytes, mode: int, seconds: int) -> None:
        # A program may have replaced or removed the directory since; a replacement keeps the
        # program's mode.
        with suppress(OSError), opened(home, path, os.O_PATH | os.O_DIRECTORY, follow=False) as fd:
            os.utime(path_of(fd), (seconds, seconds))
            os.chmod(path_of(fd), mode)

    def _put(self, home: int, path: bytes) -> None:
        with opened_parent(home, path) as (parent, name):
            os.rename(self._temporary, name, dst_dir_fd=parent)
        self._unpacked += 1
        # rename(2) between two names of one file removes neither.
        remove_file(self._temporary)

    def _link(self, home: int, path: bytes) -> None:
        with opened(home, path, os.O_PATH) as name:
            beneath.check_own_regular(os.fstat(name), path, self._context.uid)
            with closing_fd(os.open(self._context.staging, os.O_PATH | os.O_DIRECTORY)) as staging:
                # dst_dir_fd makes os.link call linkat(2), which can follow the link in /proc.
                target = os.path.basename(self._temporary)
                os.link(path_of(name), target, dst_dir_fd=staging, follow_symlinks=True)

    def _target(self, name: str, what: str) -> bytes:
        path = name.encode("utf-8", "surrogateescape")
        if path.startswith(b"/"):
            raise InvalidRequest.field("body", f"member {shown(path)}: its {what} is absolute")
        return clean_path(join(self._spot.path, clean_path(path, "body")), "body")


def _link_target(path: bytes, linkname: str) -> bytes:
    """Return a symbolic link's target. Raises InvalidRequest for a target that no link can have."""
    target = linkname.encode("utf-8", "surrogateescape")
    if not target or b"\0" in target:
        raise InvalidRequest.field("body", f"member {shown(path)}: its link leads nowhere")
    return target


def _seconds(member: tarfile.TarInfo) -> int:
    return min(max(int(member.mtime), 0), _MAX_MTIME)
