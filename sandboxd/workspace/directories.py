# SPDX-License-Identifier: Apache-2.0
"""The directories of sandboxes on disk; fits ports.workspaces.Workspaces.

<state-dir>/sandboxes/<id>/       root's, 0710: a sandbox's uid may pass, not look
    home/  tmp/                   the sandbox's, 0700
    staging/                      root's, 0700: files being written, trees being removed
    passwd  group  ...            root's, 0644: seen in the sandbox's /etc
    executions/<eid>/             root's, 0700: records and output spools
    disk.img                      root's, 0600, where each sandbox has a disk image: home, tmp
                                  and staging are in the image then
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from typing import cast

from sandboxd.core.levels import HOME_INSIDE, TMP_INSIDE
from sandboxd.core.model import Enforcement, Sandbox
from sandboxd.core.names import is_id
from sandboxd.core.times import OutputTimes
from sandboxd.core.turns import Turn
from sandboxd.engine.ports.workspaces import DiskUse, Room
from sandboxd.errors import ConfigError, host_lacks
from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.files import names_in
from sandboxd.osutil.privileges import Privileges
from sandboxd.protocol.times import MAX_BYTES, SUFFIX
from sandboxd.workspace import identity
from sandboxd.workspace.disk import Disk, DiskMeans
from sandboxd.workspace.files import HomeFiles
from sandboxd.workspace.home_context import HomeContext
from sandboxd.workspace.own_disks import Mounts, OwnDisks
from sandboxd.workspace.removals import Helpers, Removals
from sandboxd.workspace.spool_times import parsed
from sandboxd.workspace.watch import DirectoryWatches
from sandboxd.workspace.workers import Workers

_log = logging.getLogger(__name__)
# Mounted over inside every sandbox, so that no path below can be reached from inside.
_COVERED = ("/tmp", "/var/tmp", "/dev/shm", "/proc")  # noqa: S108


class Directories:
    """The state directory."""

    def __init__(
        self,
        state_directory: str,
        privileges: Privileges,
        *,
        disk_floor_bytes: int | None = None,
        disk_means: DiskMeans = DiskMeans.AUTO,
    ) -> None:
        self._root = os.path.join(state_directory, "sandboxes")
        self._means = disk_means
        self._privileges = privileges
        self._disk = Disk(self._root, privileges, disk_floor_bytes, disk_means)
        self._own_disks: OwnDisks | None = None
        self._watches = DirectoryWatches()
        self._workers = Workers("files", privileges)
        self._removals = Removals(privileges)

    def open(self) -> None:
        """Make the root directory. Raises ConfigError where a sandbox's uid could not enter."""
        os.makedirs(self._root, mode=0o711, exist_ok=True)
        if self._privileges.is_root:
            check_reachable(self._root, "state")
        self._disk.open()

    async def use(self, helpers: Helpers, mounts: Mounts) -> None:
        """Use helpers for large removals, and images. Raises ConfigError if images fail."""
        self._removals.helpers = helpers
        if self._privileges.is_root:
            self._own_disks = OwnDisks(self._root, mounts)
            self._own_disks.open()
        if self._means is DiskMeans.IMAGE:
            await cast(OwnDisks, self._own_disks).try_out()
            check_reachable(os.path.dirname(mounts.directory("any")), "disks")

    def close(self) -> None:
        """Stop running removals, since the process's end would wait for them."""
        self._removals.close()
        self._watches.close()
        self._workers.close()
        self._disk.close()

    async def create(self, sandbox: Sandbox) -> None:
        await asyncio.to_thread(self._create, sandbox)
        if self._means is DiskMeans.IMAGE and self._own_disks is not None:
            await self._own_disks.hold(sandbox, sandbox.limits.disk_bytes)
        await asyncio.to_thread(self._create_contents, sandbox)

    async def create_execution(self, sandbox_id: str, execution_id: str) -> None:
        with _disk_full_named(self._root):
            os.mkdir(self.record_directory(sandbox_id, execution_id), 0o700)

    async def remove_execution(self, sandbox_id: str, execution_id: str) -> None:
        await self._removals.remove(self.record_directory(sandbox_id, execution_id))

    async def execution_ids(self, sandbox_id: str) -> list[str]:
        path = os.path.join(self._path(sandbox_id), "executions")
        return list(filter(is_id, await asyncio.to_thread(names_in, path)))

    async def discard_execution(self, sandbox_id: str, execution_id: str) -> None:
        path = self.record_directory(sandbox_id, execution_id)
        if "execution.json.unreadable" not in await asyncio.to_thread(names_in, path):
            await self._removals.remove(path)

    async def remove_contents(self, sandbox: Sandbox) -> None:
        """Remove home and tmp in the owner's turn; records stay."""
        if self._own_disks is not None:
            await self._own_disks.remove(sandbox.id)
        for path in (self.home(sandbox.id), self.tmp(sandbox.id), self._staging(sandbox.id)):
            await self._removals.remove(path, turn=Turn(sandbox.owner_uid, sandbox.id))

    async def remove(self, sandbox_id: str) -> None:
        if self._own_disks is not None:
            await self._own_disks.remove(sandbox_id)
        await self._removals.remove(self._path(sandbox_id))

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Remove what an earlier daemon left half made or half removed, but no record set aside."""
        for sandbox_id in sandbox_ids:
            for name in await asyncio.to_thread(names_in, self._staging(sandbox_id)):
                await self._removals.discard(os.path.join(self._staging(sandbox_id), name))
        if self._own_disks is not None:
            await self._own_disks.discard_unknown(sandbox_ids)
        for path in await asyncio.to_thread(self._unknown, sandbox_ids):
            _log.warning("Removing %s, which no record knows", path)
            await self._removals.remove(path)

    def _unknown(self, sandbox_ids: Collection[str]) -> list[str]:
        names = set(filter(is_id, os.listdir(self._root))) - set(sandbox_ids)
        paths = [self._path(name) for name in names]
        return [p for p in paths if not os.path.exists(os.path.join(p, "sandbox.json.unreadable"))]

    def holds_disk(self, sandbox_id: str) -> bool:
        return self._disk.holds or self.has_own_disk(sandbox_id)

    def has_own_disk(self, sandbox_id: str) -> bool:
        return self._own_disks is not None and self._own_disks.has(sandbox_id)

    def disk_enforcement(self) -> Enforcement:
        if self._means is DiskMeans.IMAGE and self._own_disks is not None:
            return self._own_disks.enforcement()
        return self._disk.enforcement()

    async def limit_disk(self, sandbox: Sandbox, size_bytes: int) -> None:
        if self._own_disks is not None and self._own_disks.has(sandbox.id):
            await self._own_disks.hold(sandbox, size_bytes)
            return
        with _disk_full_named(self._root):
            await asyncio.to_thread(self._disk.limit, sandbox.uid, size_bytes)

    async def lift_disk_limit(self, uid: int) -> None:
        try:
            await asyncio.to_thread(self._disk.lift, uid)
        except OSError as exc:
            _log.error("Cannot lift the disk quota of uid %d: %s", uid, exc)

    async def disk_used(self, sandbox: Sandbox) -> DiskUse:
        if self._own_disks is not None and self._own_disks.has(sandbox.id):
            return DiskUse(await asyncio.to_thread(self._own_disks.used_bytes, sandbox.id))
        paths = (self.home(sandbox.id), self.tmp(sandbox.id), self._staging(sandbox.id))
        turn = Turn(sandbox.owner_uid, sandbox.id)
        return await self._disk.use(paths, sandbox.uid, sandbox.limits.disk_bytes, turn)

    async def disk_growth(self) -> int:
        return await self._disk.growth_bytes()

    def files(
        self,
        sandbox: Sandbox,
        take: Callable[[int], Awaitable[None]],
        *,
        caller_uid: int,
        private_tmp: bool,
    ) -> HomeFiles:
        turn = Turn(caller_uid, sandbox.id)
        context = HomeContext(
            home=self.home(sandbox.id),
            staging=self._staging(sandbox.id),
            uid=sandbox.uid,
            workers=self._workers,
            remove=partial(self._removals.remove, turn=turn),
            take=take,
            turn=turn,
            inside=self._paths_inside(sandbox, private_tmp),
        )
        return HomeFiles(context)

    def home(self, sandbox_id: str) -> str:
        return os.path.join(self._directory(sandbox_id), "home")

    def tmp(self, sandbox_id: str) -> str:
        return os.path.join(self._directory(sandbox_id), "tmp")

    def identity_files(self, sandbox: Sandbox) -> Mapping[str, str]:
        directory = self._path(sandbox.id)
        return {f"/etc/{name}": os.path.join(directory, name) for name in identity.names(sandbox)}

    async def follow_host(self, sandbox: Sandbox) -> None:
        """Rewrite the files of a sandbox in the host's network in place, since they are mounted."""
        if identity.follows_host(sandbox):
            await asyncio.to_thread(self._follow_host, sandbox)

    def record_directory(self, sandbox_id: str, execution_id: str) -> str:
        return os.path.join(self._path(sandbox_id), "executions", execution_id)

    def output_size(self, sandbox_id: str, execution_id: str, stream: str) -> int:
        try:
            return os.stat(self._spool(sandbox_id, execution_id, stream)).st_size
        except FileNotFoundError:
            return 0

    @cached_property
    def floor_bytes(self) -> int:
        """Return the bytes to be kept free for new sandboxes, as of the first look."""
        return self._disk.room().floor_bytes

    async def room(self) -> Room:
        return await asyncio.to_thread(self._disk.room)

    async def read_output(
        self, sandbox_id: str, execution_id: str, stream: str, offset: int, size: int
    ) -> bytes:
        """Return at most `size` bytes of a spool from `offset`; fewer at the spool's end."""
        path = self._spool(sandbox_id, execution_id, stream)
        return await asyncio.to_thread(_read, path, offset, size)

    async def output_times(
        self, sandbox_id: str, execution_id: str, stream: str
    ) -> OutputTimes | None:
        """Return when the output in a spool came; None without output or without a times file."""
        path = f"{self._spool(sandbox_id, execution_id, stream)}{SUFFIX}"
        data = await asyncio.to_thread(_read, path, 0, MAX_BYTES)
        return parsed(data)

    def watch_output(
        self, sandbox_id: str, execution_id: str, ring: Callable[[], None]
    ) -> AbstractContextManager[None]:
        return self._watches.watching(self.record_directory(sandbox_id, execution_id), ring)

    def _paths_inside(self, sandbox: Sandbox, private_tmp: bool) -> Mapping[bytes, str]:
        """Return path inside -> path on the host for the sandbox's directories."""
        home, tmp = self.home(sandbox.id), self.tmp(sandbox.id)
        inside = {HOME_INSIDE: home}
        if private_tmp:
            inside |= dict.fromkeys(TMP_INSIDE, tmp)
        if not sandbox.has_own_root:
            inside |= {home: home, tmp: tmp}
        return {os.fsencode(path): directory for path, directory in inside.items()}

    def _staging(self, sandbox_id: str) -> str:
        return os.path.join(self._directory(sandbox_id), "staging")

    def _directory(self, sandbox_id: str) -> str:
        if self._own_disks is not None and self._own_disks.has(sandbox_id):
            return self._own_disks.directory(sandbox_id)
        return self._path(sandbox_id)

    def _spool(self, sandbox_id: str, execution_id: str, stream: str) -> str:
        return os.path.join(self.record_directory(sandbox_id, execution_id), stream)

    def _path(self, sandbox_id: str) -> str:
        return os.path.join(self._root, sandbox_id)

    def _follow_host(self, sandbox: Sandbox) -> None:
        for name in identity.OF_HOST_NETWORK:
            path = os.path.join(self._path(sandbox.id), name)
            try:
                identity.rewrite(path, identity.text(sandbox, name, self.home(sandbox.id)))
            except OSError as exc:
                _log.warning("Sandbox %s goes on with an old %s: %s", sandbox.id, name, exc)

    def _create(self, sandbox: Sandbox) -> None:
        self._disk.check_floor()
        sandbox_id, uid = sandbox.id, sandbox.uid
        with _disk_full_named(self._root):
            self._disk.limit(uid, sandbox.limits.disk_bytes)
            os.mkdir(self._path(sandbox_id), 0o710)
            if self._privileges.is_root:
                # The group alone may pass: a program may open its home to every user by chmod.
                os.chown(self._path(sandbox_id), 0, uid)
            os.mkdir(os.path.join(self._path(sandbox_id), "executions"), 0o700)

    def _create_contents(self, sandbox: Sandbox) -> None:
        sandbox_id, uid = sandbox.id, sandbox.uid
        with _disk_full_named(self._root):
            os.mkdir(self._staging(sandbox_id), 0o700)
            for path, file in self.identity_files(sandbox).items():
                text = identity.text(sandbox, os.path.basename(path), self.home(sandbox_id))
                identity.write(file, text)
            for path in (self.home(sandbox_id), self.tmp(sandbox_id)):
                os.mkdir(path, 0o700)
                if self._privileges.is_root:
                    os.chown(path, uid, uid)


def _read(path: str, offset: int, size: int) -> bytes:
    try:
        with closing_fd(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
            return os.pread(fd, size, offset)
    except FileNotFoundError:
        return b""


@contextmanager
def _disk_full_named(root: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise host_lacks("cannot write to the state directory", exc, root) from exc


def check_reachable(root: str, what: str) -> None:
    """Raise ConfigError where a sandbox's uid could not enter a directory; it may be yet to make.

    what: the directory's purpose, in words.
    """
    path = os.path.realpath(root)
    if any(path == covered or path.startswith(f"{covered}/") for covered in _COVERED):
        raise ConfigError(
            f"cannot use {root} for {what}: sandboxes have a {path.split('/')[1]!r} of their own",
            hint="use a directory below /var/lib, or below /run",
        )
    while path != "/":
        if os.path.exists(path) and not os.stat(path).st_mode & stat.S_IXOTH:
            raise ConfigError(
                f"cannot use {root} for {what}: sandboxes' uids cannot pass {path}",
                hint=f"use another directory, or `chmod o+x {path}`",
            )
        path = os.path.dirname(path)
