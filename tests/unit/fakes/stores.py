# SPDX-License-Identifier: Apache-2.0
"""Directories, uids and records."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import cast

from sandboxd.core.model import EnforcedBy, Enforcement, Execution, Sandbox
from sandboxd.core.times import OutputTimes
from sandboxd.core.totals import SavedHistory
from sandboxd.core.turns import Turn
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.engine.ports.workspaces import DiskUse, Room
from sandboxd.errors import HostDiskFull, LimitBelowUsage
from sandboxd.osutil.privileges import of_this_process
from sandboxd.workspace.files import HomeFiles
from sandboxd.workspace.home_context import HomeContext
from sandboxd.workspace.removal import remove_tree
from tests.unit.fakes.world import Record, World


class FakeWorkspaces:
    """Fits ports.workspaces.Workspaces. Records go with their directories."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def floor_bytes(self) -> int:
        return self._world.floor_bytes

    async def room(self) -> Room:
        return Room(self._world.free_bytes, self._world.floor_bytes)

    async def create(self, sandbox: Sandbox) -> None:
        self._world.hold(f"home {sandbox.id}")
        self._world.call("create_workspace")
        if self._world.disk is not None:
            for path in self._directories(sandbox.id):
                os.makedirs(path)

    async def create_execution(self, sandbox_id: str, execution_id: str) -> None:
        self._world.call("create_execution")
        self._world.records[execution_id] = Record(sandbox_id)
        self._world.hold(f"record {execution_id}")

    async def remove_execution(self, sandbox_id: str, execution_id: str) -> None:
        self._world.records.pop(execution_id, None)
        self._world.saved_executions.pop(execution_id, None)
        self._world.drop(f"record {execution_id}")

    async def execution_ids(self, sandbox_id: str) -> Collection[str]:
        return [
            execution_id
            for execution_id, record in self._world.records.items()
            if record.sandbox_id == sandbox_id
        ]

    async def discard_execution(self, sandbox_id: str, execution_id: str) -> None:
        await self.remove_execution(sandbox_id, execution_id)

    async def remove_contents(self, sandbox: Sandbox) -> None:
        self._world.drop(f"home {sandbox.id}")
        if self._world.disk is not None:
            for path in self._directories(sandbox.id):
                shutil.rmtree(path)

    async def remove(self, sandbox_id: str) -> None:
        self._world.drop(f"home {sandbox_id}")
        for execution_id in await self.execution_ids(sandbox_id):
            await self.remove_execution(sandbox_id, execution_id)
        self._world.saved_sandboxes.pop(sandbox_id, None)

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        self._world.call("discard_unknown_workspaces")

    def holds_disk(self, sandbox_id: str) -> bool:
        return self._world.disk_held or self._world.disk_own

    def has_own_disk(self, sandbox_id: str) -> bool:
        return self._world.disk_own

    def disk_enforcement(self) -> Enforcement:
        if self._world.disk_own:
            return Enforcement(EnforcedBy.KERNEL, "a file system of its own")
        if self._world.disk_held:
            return Enforcement(EnforcedBy.KERNEL, "user quota")
        return Enforcement(EnforcedBy.SUPERVISOR, "counted", "every 0.25 s")

    async def limit_disk(self, sandbox: Sandbox, size_bytes: int) -> None:
        if self._world.disk_own and size_bytes < self._world.disk_used:
            raise LimitBelowUsage(
                f"cannot lower disk_bytes to {size_bytes}: more is in use",
                details={"limit": "disk_bytes", "asked": size_bytes,
                         "current": self._world.disk_used},
            )  # fmt: skip
        self._world.disk_limits[sandbox.uid] = size_bytes

    async def lift_disk_limit(self, uid: int) -> None:
        self._world.disk_limits.pop(uid, None)

    async def disk_used(self, sandbox: Sandbox) -> DiskUse:
        self._world.call("disk_used")
        if sandbox.id in self._world.disk_slow:
            await self._world.disk_slow[sandbox.id].wait()
        return DiskUse(self._world.disk_used, self._world.disk_seconds, self._world.disk_obstacle)

    async def disk_growth(self) -> int:
        return self._world.disk_growth

    def files(
        self,
        sandbox: Sandbox,
        take: Callable[[int], Awaitable[None]],
        *,
        caller_uid: int,
        private_tmp: bool,
    ) -> SandboxFiles:
        disk = self._world.disk
        if self._world.files is not None:
            return self._world.files
        if disk is None:
            # For tests that ask only whether files may be used.
            return cast("SandboxFiles", self)
        home, tmp, staging = self._directories(sandbox.id)
        turn = Turn(caller_uid, sandbox.id)
        inside = {b"/tmp": tmp, os.fsencode(home): home}
        uid = os.getuid()
        return HomeFiles(HomeContext(home, staging, uid, disk.workers, _remove, take, turn, inside))

    def home(self, sandbox_id: str) -> str:
        return self._directories(sandbox_id)[0]

    def tmp(self, sandbox_id: str) -> str:
        return self._directories(sandbox_id)[1]

    def _directories(self, sandbox_id: str) -> list[str]:
        """Home, tmp and staging; without a disk nothing is at these paths."""
        below = "" if self._world.disk is None else self._world.disk.directory
        return [f"{below}/{sandbox_id}/{name}" for name in ("home", "tmp", "staging")]

    def identity_files(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {}

    async def follow_host(self, sandbox: Sandbox) -> None:
        self._world.call("follow_host")

    def record_directory(self, sandbox_id: str, execution_id: str) -> str:
        return f"/records/{execution_id}"

    def output_size(self, sandbox_id: str, execution_id: str, stream: str) -> int:
        more = self._world.more_printed.get(execution_id, 0) if stream == "stdout" else 0
        return len(self._spool(execution_id, stream)) + more

    async def read_output(
        self, sandbox_id: str, execution_id: str, stream: str, offset: int, size: int
    ) -> bytes:
        data = bytes(self._spool(execution_id, stream)[offset : offset + size])
        # A thread has read, and the loop has not gone on yet.
        await self._world.reach(f"read {stream}")
        return data

    def _spool(self, execution_id: str, stream: str) -> bytearray:
        record = self._world.records.get(execution_id)
        return bytearray() if record is None else record.spools[stream]

    async def output_times(
        self, sandbox_id: str, execution_id: str, stream: str
    ) -> OutputTimes | None:
        return None

    @contextmanager
    def watch_output(
        self, sandbox_id: str, execution_id: str, ring: Callable[[], None]
    ) -> Iterator[None]:
        rings = self._world.records[execution_id].rings
        rings.append(ring)
        self._world.call(f"watch {execution_id}")
        try:
            yield
        finally:
            rings.remove(ring)
            self._world.tell()


async def _remove(path: str) -> None:
    remove_tree(path, of_this_process())


class FakeUids:
    """Fits ports.host.Uids."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next = 0x70000000

    async def take(self, sandbox_id: str) -> int:
        self._world.call("take_uid")
        self._next += 1
        self._world.hold(f"uid {self._next}")
        return self._next

    async def give_back(self, uid: int) -> bool:
        if uid in self._world.stuck_uids:
            return False
        self._world.drop(f"uid {uid}")
        return True

    async def busy(self, uids: Collection[int]) -> Collection[int]:
        return self._world.stuck_uids & set(uids)

    async def reclaim(self, uid: int, sandbox_id: str) -> None:
        self._world.hold(f"uid {uid}")

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        self._world.call("discard_unknown_uids")


class FakeStore:
    """Fits ports.store.Store."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def save_sandbox(self, sandbox: Sandbox) -> None:
        self._check_room()
        self._world.call("save_sandbox")
        self._world.saved_sandboxes[sandbox.id] = copy(sandbox)

    async def save_execution(self, execution: Execution) -> None:
        self._check_room()
        self._world.call("save_execution")
        self._world.saved_executions[execution.id] = copy(execution)

    async def save_draining(self, draining: bool) -> None:
        self._check_room()
        self._world.saved_draining = draining

    async def load_draining(self) -> bool:
        return self._world.saved_draining

    async def load(self) -> list[tuple[Sandbox, list[Execution]]]:
        return [
            (
                copy(s),
                [copy(e) for e in self._world.saved_executions.values() if e.sandbox_id == s.id],
            )
            for s in self._world.saved_sandboxes.values()
        ]

    def _check_room(self) -> None:
        if self._world.full:
            raise HostDiskFull("cannot write a record: the disk is full")


class FakeHistoryStore:
    """Fits ports.store.HistoryStore."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.saved: list[SavedHistory] = []

    async def load(self) -> SavedHistory | None:
        if not self.saved:
            return None
        last = self.saved[-1]
        intervals = [interval for past in self.saved for interval in past.intervals]
        return SavedHistory(last.known_since, intervals, last.counted)

    async def save(self, past: SavedHistory) -> None:
        if self._world.full:
            raise HostDiskFull("cannot write the history: the disk is full")
        self.saved.append(past)
