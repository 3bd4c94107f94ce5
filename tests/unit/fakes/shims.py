# SPDX-License-Identifier: Apache-2.0
"""Running commands: each does what its program says, or what a test has it do."""

from __future__ import annotations

import asyncio
import os
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime

from sandboxd.core.model import Command, ErrorCode, OutputSummary
from sandboxd.core.outcome import Facts
from sandboxd.engine.ports.launch import LaunchRequest, Shim
from sandboxd.errors import StdinClosed
from tests.unit.fakes.programs import Program, check_size
from tests.unit.fakes.world import STREAMS, World

# A pipe's, by default (pipe(7)).
_PIPE_BYTES = 64 << 10


@dataclass
class FakeInput:
    """Takes `piece_bytes` at a time while there is room. is_broken: nobody reads any more."""

    taken: bytes = b""
    is_terminal: bool = False
    is_broken: bool = False
    piece_bytes: int = 2
    room: asyncio.Event = field(default_factory=asyncio.Event)

    def end_character(self) -> bytes:
        return b"\x04"

    async def write(self, data: memoryview) -> int:
        await self.room.wait()
        if self.is_broken:
            raise StdinClosed("cannot write to standard input: nobody reads it any more")
        self.taken += data[: self.piece_bytes]
        return len(data[: self.piece_bytes])


@dataclass
class FakeShim:
    """Ends as the program does, when a test says so, or on an order. orders: all that came, but for
    go, freeze and thaw. is_deaf: no order reaches the shim. is_immortal: nothing ends the shim."""

    world: World
    request: LaunchRequest
    pid: int = 1
    evidence_directory: str = ""
    pidfd: int = -1
    frozen: bool = False
    is_deaf: bool = False
    is_immortal: bool = False
    stdin: FakeInput | None = None
    is_input_closed: bool = False
    started_at: datetime | None = None
    orders: list[str] = field(default_factory=list)
    end: asyncio.Future[Facts | None] = field(default_factory=asyncio.Future)
    _program: Program | None = None
    _timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """The execution's id."""
        return self.request.execution.id

    async def go(self) -> datetime:
        await self.world.reach("go")
        command = self.request.execution.command
        check_size(command, self.request.env)
        self._program = self.world.programs(command)
        self.started_at = self.world.now()
        for stream in STREAMS:
            self.print(stream, getattr(self._program, stream))
        seconds = self._program.seconds
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._end_by_itself)
        return self.started_at

    async def started(self) -> datetime | None:
        return self.started_at

    async def abort(self) -> None:
        self.world.drop(f"shim {self.name}")

    async def kill(self, code: ErrorCode, *, grace_seconds: float) -> bool:
        if self.is_deaf:
            return False
        self._order(f"kill {code} {grace_seconds:g}")
        if not self.is_immortal:
            self.finish(reason="killed", kill_code=code.value, wait_status=9)
        return True

    async def signal(self, number: int, *, group: bool) -> None:
        self._order(f"signal {number} to the group" if group else f"signal {number}")

    async def destroy(self) -> None:
        self._order("destroy")
        if not self.is_immortal and not self.end.done():
            self.end.set_result(None)

    async def freeze(self) -> None:
        self.frozen = True

    async def thaw(self) -> None:
        self.frozen = False
        if self._timer is not None and self._timer.when() <= asyncio.get_running_loop().time():
            self._end_by_itself()

    async def input(self) -> FakeInput | None:
        return None if self.is_input_closed else self.stdin

    async def close_input(self) -> None:
        self.is_input_closed = True
        self._order("close_input")

    async def resize(self, rows: int, cols: int) -> None:
        self._order(f"resize {rows} {cols}")

    async def ended(self) -> Facts | None:
        return await asyncio.shield(self.end)

    async def gone(self, *, timeout_seconds: float) -> bool:
        if self.is_immortal:
            return False
        self.world.drop(f"shim {self.name}")
        return True

    def print(self, stream: str, data: bytes) -> None:
        """Have the command print."""
        record = self.world.records[self.name]
        record.spools[stream] += data
        if data:
            for ring in record.rings:
                ring()

    def finish(
        self,
        *,
        reason: str = "exited",
        kill_code: str | None = None,
        wait_status: int = 0,
        size: int = 0,
    ) -> None:
        """Have the command end. size: bytes of standard output beside those that `print` gave."""
        facts = self.facts(wait_status=wait_status, size=size)
        self.leave(replace(facts, reason=reason, kill_code=kill_code))

    def facts(self, *, wait_status: int = 0, size: int = 0) -> Facts:
        """The record of a command that ends by itself now."""
        printed = [len(self.world.records[self.name].spools[stream]) for stream in STREAMS]
        streams = (OutputSummary(printed[0] + size), OutputSummary(printed[1]))
        now = self.world.now().timestamp()
        return Facts("exited", None, wait_status, 1.0, now, True, 0, 0.0, 0.0, streams)

    def leave(self, facts: Facts) -> None:
        """Have the command end with this record, unless there is one."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.end.done():
            self.world.facts[self.name] = facts
            self.end.set_result(facts)

    def die(self) -> None:
        """Have the shim die without a record."""
        self.end.set_result(None)

    def _end_by_itself(self) -> None:
        if self._program is not None and not self.frozen:
            self.finish(wait_status=self._program.exit_code << 8)

    def _order(self, what: str) -> None:
        self.orders.append(what)
        self.world.tell()


def _input(command: Command) -> FakeInput | None:
    if not command.stdin_open and command.tty is None:
        return None
    opened = FakeInput(is_terminal=command.tty is not None, piece_bytes=_PIPE_BYTES)
    opened.room.set()
    return opened


class FakeLauncher:
    """Fits ports.launch.Launcher."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def launch(self, request: LaunchRequest) -> Shim:
        await self._world.reach("launch")
        # What a shim was told does not change with the engine's record.
        request = replace(request, execution=copy(request.execution), sandbox=copy(request.sandbox))
        shim = FakeShim(self._world, request, stdin=_input(request.execution.command))
        self._world.shims[request.execution.id] = shim
        self._world.hold(f"shim {request.execution.id}")
        return shim

    async def attach(
        self, sandbox_id: str, execution_id: str, record_directory: str
    ) -> Shim | None:
        shim = self._world.shims.get(execution_id)
        return None if shim is None or shim.end.done() else shim

    def read_record(self, record_directory: str) -> Facts | None:
        return self._world.facts.get(os.path.basename(record_directory))

    async def upkeep(self) -> None:
        self._world.call("launcher_upkeep")
