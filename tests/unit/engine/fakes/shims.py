# SPDX-License-Identifier: Apache-2.0
"""Running commands that tests end as they like."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from datetime import datetime

from sandboxd.core.model import ErrorCode, OutputSummary
from sandboxd.core.outcome import Facts
from sandboxd.engine.ports.launch import LaunchRequest, Shim
from sandboxd.errors import StdinClosed
from tests.unit.engine.fakes.world import World


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

    async def signal(self, number: int, *, group: bool) -> None:
        self.orders.append(f"signal {number} to the group" if group else f"signal {number}")

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
        streams = (OutputSummary(size), OutputSummary())
        self.leave(Facts(reason, kill_code, wait_status, 1.0, 0.0, True, 0, 0.0, 0.0, streams))

    def leave(self, facts: Facts) -> None:
        """Let it end with this record, unless it has ended."""
        if not self.end.done():
            self.world.records[self.name] = facts
            self.end.set_result(facts)

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
        shim = self._world.shims.get(execution_id)
        return None if shim is None or shim.end.done() else shim

    def read_record(self, record_directory: str) -> Facts | None:
        return self._world.records.get(os.path.basename(record_directory))

    async def upkeep(self) -> None:
        self._world.call("launcher_upkeep")
