# SPDX-License-Identifier: Apache-2.0
"""Directories, uids and records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from sandboxd.core.model import EnforcedBy, Enforcement, Execution, Sandbox
from sandboxd.core.sums import Past
from sandboxd.core.times import OutputTimes
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.engine.ports.workspaces import DiskUse, Room
from sandboxd.errors import HostDiskFull
from tests.unit.engine.fakes.world import World


class FakeWorkspaces:
    """Fits ports.workspaces.Workspaces."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def floor_bytes(self) -> int:
        return self._world.floor_bytes

    async def room(self) -> Room:
        return Room(self._world.free_bytes, self._world.floor_bytes)

    async def create(self, sandbox: Sandbox) -> None:
        self._world.held.add(f"home {sandbox.id}")
        self._world.call("create_workspace")

    async def create_execution(self, sandbox_id: str, execution_id: str) -> None:
        self._world.call("create_execution")
        self._world.held.add(f"record {execution_id}")

    async def remove_execution(self, sandbox_id: str, execution_id: str) -> None:
        self._world.held.discard(f"record {execution_id}")

    async def execution_ids(self, sandbox_id: str) -> Collection[str]:
        names = (held.partition(" ") for held in self._world.held)
        return [name for kind, _, name in names if kind == "record"]

    async def discard_execution(self, sandbox_id: str, execution_id: str) -> None:
        self._world.held.discard(f"record {execution_id}")

    async def remove_contents(self, sandbox: Sandbox) -> None:
        self._world.held.discard(f"home {sandbox.id}")

    async def remove(self, sandbox_id: str) -> None:
        self._world.held.discard(f"home {sandbox_id}")

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        self._world.call("discard_unknown_workspaces")

    def holds_disk(self, sandbox_id: str) -> bool:
        return self._world.disk_held

    def has_own_disk(self, sandbox_id: str) -> bool:
        return False

    def disk_enforcement(self) -> Enforcement:
        return Enforcement(EnforcedBy.SUPERVISOR, "a test")

    async def limit_disk(self, sandbox: Sandbox, size_bytes: int) -> None:
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
        return cast("SandboxFiles", self)

    def home(self, sandbox_id: str) -> str:
        return f"/home/{sandbox_id}"

    def tmp(self, sandbox_id: str) -> str:
        return f"/tmp/{sandbox_id}"

    def identity_files(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {}

    async def follow_host(self, sandbox: Sandbox) -> None:
        self._world.call("follow_host")

    def record_directory(self, sandbox_id: str, execution_id: str) -> str:
        return f"/records/{execution_id}"

    def output_size(self, sandbox_id: str, execution_id: str, stream: str) -> int:
        return self._world.spools.get(execution_id, 0) if stream == "stdout" else 0

    async def read_output(
        self, sandbox_id: str, execution_id: str, stream: str, offset: int, size: int
    ) -> bytes:
        return b""

    async def output_times(
        self, sandbox_id: str, execution_id: str, stream: str
    ) -> OutputTimes | None:
        return None

    @contextmanager
    def watch_output(
        self, sandbox_id: str, execution_id: str, ring: Callable[[], None]
    ) -> Iterator[None]:
        self._world.held.add(f"watch {execution_id}")
        try:
            yield
        finally:
            self._world.held.discard(f"watch {execution_id}")


class FakeUids:
    """Fits ports.host.Uids."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next = 0x70000000

    async def take(self, sandbox_id: str) -> int:
        self._world.call("take_uid")
        self._next += 1
        self._world.held.add(f"uid {self._next}")
        return self._next

    async def give_back(self, uid: int) -> bool:
        if uid in self._world.stuck_uids:
            return False
        self._world.held.discard(f"uid {uid}")
        return True

    async def busy(self, uids: Collection[int]) -> Collection[int]:
        return self._world.stuck_uids & set(uids)

    async def reclaim(self, uid: int, sandbox_id: str) -> None:
        self._world.held.add(f"uid {uid}")

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        self._world.call("discard_unknown_uids")


class FakeStore:
    """Fits ports.store.Store."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sandboxes: dict[str, Sandbox] = {}
        self.executions: dict[str, Execution] = {}
        self.draining = False

    async def save_sandbox(self, sandbox: Sandbox) -> None:
        self._world.call("save_sandbox")
        self.sandboxes[sandbox.id] = sandbox

    async def save_execution(self, execution: Execution) -> None:
        if self._world.full:
            raise HostDiskFull("no room")
        self._world.call("save_execution")
        self.executions[execution.id] = execution

    async def save_draining(self, draining: bool) -> None:
        self.draining = draining

    async def load_draining(self) -> bool:
        return self.draining

    async def load(self) -> list[tuple[Sandbox, list[Execution]]]:
        return [
            (s, [e for e in self.executions.values() if e.sandbox_id == s.id])
            for s in self.sandboxes.values()
        ]


class FakePast:
    """Fits ports.store.PastStore."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.saved: list[Past] = []

    async def load(self) -> Past | None:
        if not self.saved:
            return None
        last = self.saved[-1]
        intervals = [interval for past in self.saved for interval in past.intervals]
        return Past(last.known_since, intervals, last.counted)

    async def save(self, past: Past) -> None:
        if self._world.full:
            raise HostDiskFull("no room")
        self.saved.append(past)
