# SPDX-License-Identifier: Apache-2.0
"""The world as the engine sees it, in memory, with faults on demand.

Every fake writes down what it holds, so that a test can ask what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

from sandboxd.binds import BindPolicy
from sandboxd.engine.context import Context, Settings, Tasks
from sandboxd.engine.engine import Engine
from sandboxd.engine.executions import Executions
from sandboxd.engine.life import Life
from sandboxd.engine.looks import Looks
from sandboxd.engine.registry import Registry
from sandboxd.engine.sandboxes import Sandboxes
from sandboxd.engine.upkeep import Upkeep
from sandboxd.errors import HostDiskFull, StdinClosed
from sandboxd.levels import Findings, Lack, offers
from sandboxd.model import (
    EnforcedBy,
    Enforcement,
    ErrorCode,
    Execution,
    Limits,
    OutputSummary,
    Sandbox,
    SandboxUsage,
    SchemeName,
)
from sandboxd.outcome import Facts
from sandboxd.policy import Budget, LimitPolicy
from sandboxd.ports.files import SandboxFiles
from sandboxd.ports.launch import LaunchRequest, Shim
from sandboxd.sums import Past
from tests.unit.values import LIMITS, NOW


class Broken(Exception):
    """The fault a test asked for."""


class World:
    """What is there, and which call breaks."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.calls: list[str] = []
        self.breaks: str | None = None
        self.stuck_uids: set[int] = set()
        self.shims: dict[str, FakeShim] = {}
        self.seconds = 1000.0
        self.memory_used: int | None = None
        self.full = False
        self.usage = SandboxUsage()
        self.disk_limits: dict[int, int] = {}
        self.disk_used = 0
        self.disk_growth = 0
        self.disk_seconds = 0.0

    def call(self, name: str) -> None:
        """Write a call down; break if it is the one that shall."""
        self.calls.append(name)
        if name == self.breaks:
            raise Broken(name)

    # -- ports.host.Clock

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class FakeInput:
    """Takes two bytes at a time while it has room, and breaks when told so."""

    taken: bytes = b""
    is_terminal: bool = False
    is_broken: bool = False
    room: asyncio.Event = field(default_factory=asyncio.Event)

    def end_character(self) -> bytes:
        return b"\x04"

    async def write(self, data: memoryview) -> int:
        await self.room.wait()
        if self.is_broken:
            raise StdinClosed("cannot write to standard input: nobody reads it any more")
        self.taken += data[:2]
        return len(data[:2])


@dataclass
class FakeShim:
    """Ends when a test says so, or when it is killed."""

    world: World
    name: str
    pid: int = 1
    evidence_directory: str = ""
    pidfd: int = -1
    frozen: bool = False
    stdin: FakeInput | None = None
    orders: list[str] = field(default_factory=list)
    end: asyncio.Future[Facts | None] = field(default_factory=asyncio.Future)

    async def go(self) -> datetime:
        self.world.call("go")
        return self.world.now()

    async def started(self) -> datetime | None:
        return self.world.now() if "go" in self.world.calls else None

    async def abort(self) -> None:
        self.world.held.discard(f"shim {self.name}")

    async def kill(self, code: ErrorCode, *, grace_seconds: float) -> None:
        self.finish(reason="killed", kill_code=code.value, wait_status=9)

    async def signal(self, number: int) -> None:
        self.orders.append(f"signal {number}")

    def destroy(self) -> None:
        self.orders.append("destroy")
        if not self.end.done():
            self.end.set_result(None)

    async def freeze(self) -> None:
        self.frozen = True

    async def thaw(self) -> None:
        self.frozen = False

    async def input(self) -> FakeInput | None:
        return self.stdin

    async def close_input(self) -> None:
        self.stdin = None
        self.orders.append("close_input")

    async def resize(self, rows: int, cols: int) -> None:
        self.orders.append(f"resize {rows} {cols}")

    async def ended(self) -> Facts | None:
        return await asyncio.shield(self.end)

    async def gone(self, *, timeout_seconds: float) -> bool:
        self.world.held.discard(f"shim {self.name}")
        return True

    def finish(
        self,
        *,
        reason: str = "exited",
        kill_code: str | None = None,
        wait_status: int = 0,
        size: int = 0,
    ) -> None:
        """Let it end."""
        if not self.end.done():
            streams = (OutputSummary(size), OutputSummary())
            self.end.set_result(
                Facts(reason, kill_code, wait_status, 1.0, 0.0, True, 0, 0.0, 0.0, streams)
            )

    def die(self) -> None:
        """Let it end without a record."""
        self.end.set_result(None)


class FakeLauncher:
    """Fits ports.launch.Launcher."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def launch(self, request: LaunchRequest) -> Shim:
        self._world.call("launch")
        shim = FakeShim(self._world, request.execution.id)
        self._world.shims[request.execution.id] = shim
        self._world.held.add(f"shim {request.execution.id}")
        return shim

    async def attach(
        self, sandbox_id: str, execution_id: str, record_directory: str
    ) -> Shim | None:
        return self._world.shims.get(execution_id)

    def read_record(self, record_directory: str) -> Facts | None:
        return None

    async def upkeep(self) -> None:
        self._world.call("launcher_upkeep")


class FakeScheme:
    """Fits ports.scheme.Scheme."""

    name = SchemeName.RLIMIT
    reason = "a test"

    def __init__(self, world: World) -> None:
        self._world = world

    def sandbox_unit(self, sandbox_id: str) -> str | None:
        return None

    def execution_unit(self, sandbox_id: str, execution_id: str) -> str | None:
        return None

    def enforcement(self, limits: Limits) -> Mapping[str, Enforcement]:
        return {}

    def rlimits(self, limits: Limits) -> Mapping[str, tuple[int, int]]:
        return {}

    def environment(self, sandbox: Sandbox, limits: Limits) -> Mapping[str, str]:
        return {}

    async def create_sandbox(self, sandbox: Sandbox) -> None:
        self._world.call("create_sandbox")
        self._world.held.add(f"slice {sandbox.id}")

    async def place(self, sandbox: Sandbox, execution: Execution, shim: Shim) -> None:
        self._world.call("place")
        self._world.held.add(f"scope {execution.id}")

    async def collect(self, sandbox: Sandbox, execution: Execution) -> None:
        self._world.held.discard(f"scope {execution.id}")

    async def change_limits(
        self,
        sandbox: Sandbox,
        limits: Limits,
        executions: Collection[tuple[Execution, Limits]],
    ) -> None:
        self._world.call("change_limits")

    async def suspend_sandbox(self, sandbox: Sandbox) -> None:
        self._world.call("suspend_sandbox")

    async def resume_sandbox(self, sandbox: Sandbox) -> None:
        self._world.call("resume_sandbox")

    async def upkeep(self) -> None:
        self._world.call("upkeep")

    def memory_current(self, sandbox: Sandbox) -> int | None:
        return self._world.memory_used

    async def usage(self, sandbox: Sandbox) -> SandboxUsage:
        return self._world.usage

    async def execution_usages(
        self, sandbox: Sandbox, executions: Collection[Execution]
    ) -> Mapping[str, SandboxUsage]:
        return {execution.id: self._world.usage for execution in executions}

    async def kill_sandbox(self, sandbox: Sandbox) -> None:
        self._world.call("kill_sandbox")

    async def without_place(self, sandboxes: Collection[Sandbox]) -> Collection[str]:
        return [s.id for s in sandboxes if f"slice {s.id}" not in self._world.held]

    async def sweep(self, sandbox: Sandbox) -> None:
        self._world.call(f"sweep {sandbox.id}")
        self._world.stuck_uids.discard(sandbox.uid)

    async def clear_strays(self) -> Iterable[str]:
        self._world.call("clear_strays")
        return ()

    async def release_sandbox(self, sandbox: Sandbox) -> None:
        self._world.call("release_sandbox")
        self._world.held.discard(f"slice {sandbox.id}")

    async def adopt_sandbox(self, sandbox: Sandbox, execution_ids: Collection[str]) -> bool:
        scopes = {held for held in self._world.held if held.startswith("scope ")}
        self._world.held -= scopes - {f"scope {known}" for known in execution_ids}
        return f"slice {sandbox.id}" in self._world.held

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> Iterable[str]:
        return ()


class FakeRoots:
    """Fits ports.scheme.Roots."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def build(
        self, sandbox: Sandbox, *, home: str, tmp: str, files: Mapping[str, str]
    ) -> None:
        self._world.held.add(f"root {sandbox.id}")
        self._world.call("build_root")

    async def remove(self, sandbox: Sandbox) -> None:
        self._world.held.discard(f"root {sandbox.id}")

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        self._world.call("discard_unknown_roots")


class FakeWorkspaces:
    """Fits ports.workspaces.Workspaces."""

    def __init__(self, world: World) -> None:
        self._world = world

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

    async def remove_contents(self, sandbox_id: str) -> None:
        self._world.held.discard(f"home {sandbox_id}")

    async def remove(self, sandbox_id: str) -> None:
        self._world.held.discard(f"home {sandbox_id}")

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        self._world.call("discard_unknown_workspaces")

    is_held_disk = False

    def holds_disk(self, sandbox_id: str) -> bool:
        return self.is_held_disk

    def has_own_disk(self, sandbox_id: str) -> bool:
        return False

    def disk_enforcement(self) -> Enforcement:
        return Enforcement(EnforcedBy.SUPERVISOR, "a test")

    async def limit_disk(self, sandbox: Sandbox, size_bytes: int) -> None:
        self._world.disk_limits[sandbox.uid] = size_bytes

    async def lift_disk_limit(self, uid: int) -> None:
        self._world.disk_limits.pop(uid, None)

    async def disk_used(self, sandbox: Sandbox) -> tuple[int, float]:
        self._world.call("disk_used")
        return self._world.disk_used, self._world.disk_seconds

    async def disk_growth(self) -> int:
        return self._world.disk_growth

    def files(self, sandbox: Sandbox, take: Callable[[int], Awaitable[None]]) -> SandboxFiles:
        return cast("SandboxFiles", self)

    def home(self, sandbox_id: str) -> str:
        return f"/home/{sandbox_id}"

    def tmp(self, sandbox_id: str) -> str:
        return f"/tmp/{sandbox_id}"

    def identity_files(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {}

    def record_directory(self, sandbox_id: str, execution_id: str) -> str:
        return f"/records/{execution_id}"

    def output_size(self, sandbox_id: str, execution_id: str, stream: str) -> int:
        return 0

    async def read_output(
        self, sandbox_id: str, execution_id: str, stream: str, offset: int, size: int
    ) -> bytes:
        return b""

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


def settings(**changes: object) -> Settings:
    """Settings for a test."""
    lacks = (Lack("a test's root", "none"),)
    found = Findings(is_root=True, kernel_limits=False, root=lacks, network=lacks)
    chosen: dict[str, object] = {
        "version": "0",
        "instance_id": "iiiiiiiiiiii",
        "policy": LimitPolicy(LIMITS, {}),
        "offers": offers(found, "auto"),
        "binds": BindPolicy({"/data": False}),
        "private_mounts": True,
        "cgroup_mode": "auto",
        "cgroup_version": "unified",
        "cgroup_detail": "",
        "max_executions": 3,
        **changes,
    }
    return Settings(**chosen)  # type: ignore[arg-type]


def make_context(world: World, **changes: object) -> Context:
    """A context of fakes; its budget holds four default sandboxes."""
    return Context(
        settings=settings(**changes),
        clock=world,
        scheme=FakeScheme(world),
        launcher=FakeLauncher(world),
        roots=FakeRoots(world),
        workspaces=FakeWorkspaces(world),
        uids=FakeUids(world),
        store=FakeStore(world),
        past=FakePast(world),
        registry=Registry(Budget(5 * LIMITS.memory_bytes, LIMITS.memory_bytes)),
        tasks=Tasks(),
        life=Life(world),
    )


def make_upkeep(context: Context) -> Upkeep:
    """An engine's upkeep alone."""
    return Upkeep(context, Sandboxes(context), Executions(context), Looks(context))


def make_engine(world: World, **changes: object) -> tuple[Engine, Context]:
    """An engine over fakes."""
    context = make_context(world, **changes)
    return Engine(context), context
