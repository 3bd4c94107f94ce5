# SPDX-License-Identifier: Apache-2.0
"""A disk that gets full: who added output loses of it, and nobody for what others filled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from sandboxd.core.model import Caller, Command, Execution, LimitChanges
from sandboxd.engine.context import Context
from sandboxd.engine.engine import Engine
from sandboxd.engine.requests import ExecutionRequest, SandboxRequest
from sandboxd.engine.spools import Spools
from tests.unit.fakes.engine import make_engine
from tests.unit.fakes.world import World
from tests.unit.values import LIMITS

GREEDY = Caller(1000, 1000, 1, is_admin=False)
MODEST = Caller(1001, 1001, 1, is_admin=False)
RUN = ExecutionRequest(Command(argv=("true",)))
SMALL = SandboxRequest(limits=LimitChanges(memory_bytes=LIMITS.memory_bytes // 4))
MIB = 1 << 20
GIB = 1 << 30


@dataclass
class Host:
    """An engine with a sandbox for each of two callers, and twice its floor free."""

    world: World
    engine: Engine
    context: Context
    spools: Spools
    boxes: dict[int, str]

    async def prints(self, caller: Caller, size: int) -> Execution:
        """One that runs on."""
        started = await self.engine.start_execution(caller, self.boxes[caller.uid], RUN)
        self.world.more_printed[started.id] = size
        return started

    async def printed(self, caller: Caller, size: int) -> str:
        """One that has ended."""
        started = await self.prints(caller, size)
        self.world.shims[started.id].finish(size=size)
        live = self.context.registry.find(caller, started.sandbox_id)
        await live.execution(started.id).collected.wait()
        return started.id

    async def left(self, caller: Caller) -> set[str]:
        """Whose records there are after one more look."""
        self.world.seconds += 1
        await self.spools.pass_once()
        return {each.id for each in self.engine.list_executions(caller)}


@asynccontextmanager
async def host() -> AsyncIterator[Host]:
    world = World()
    world.floor_bytes, world.free_bytes = GIB, 2 * GIB
    engine, context = make_engine(world)
    async with context.tasks:
        callers = (GREEDY, MODEST)
        boxes = {one.uid: (await engine.create_sandbox(one, SMALL)).id for one in callers}
        yield Host(world, engine, context, Spools(context), boxes)
        for caller in callers:
            await engine.release_sandbox(caller, boxes[caller.uid])


async def test_files_that_fill_the_disk_take_nobodys_output(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with host() as on:
        kept = {await on.printed(MODEST, 5 * GIB), await on.printed(MODEST, GIB)}
        running = await on.prints(MODEST, 3 * GIB)
        assert await on.left(MODEST) == {*kept, running.id}
        on.world.free_bytes = 0
        on.world.more_printed[running.id] += MIB
        for _ in range(3):
            assert await on.left(MODEST) == {*kept, running.id}
        assert not running.is_finished
        said = [line for line in caplog.records if "delete files" in line.message]
        assert len(said) == 1
        on.world.free_bytes = 2 * GIB
        await on.left(MODEST)
        on.world.free_bytes = 0
        await on.left(MODEST)
        assert len([line for line in caplog.records if "delete files" in line.message]) == 1


async def test_whoever_adds_output_makes_room() -> None:
    async with host() as on:
        old = {caller.uid: await on.printed(caller, 4 * GIB) for caller in (GREEDY, MODEST)}
        live = {caller.uid: await on.prints(caller, GIB) for caller in (GREEDY, MODEST)}
        await on.spools.pass_once()
        results = [await on.printed(GREEDY, size) for size in (GIB, GIB // 2)]
        everything = {old[GREEDY.uid], live[GREEDY.uid].id, *results}
        on.world.free_bytes = 2 * GIB - 1
        assert await on.left(GREEDY) == everything - {results[0]}
        assert not live[GREEDY.uid].is_finished
        on.world.free_bytes = GIB
        on.world.more_printed[live[GREEDY.uid].id] += GIB
        assert await on.left(GREEDY) == everything - {results[0]}
        ended = await on.engine.wait_execution(
            GREEDY, on.boxes[GREEDY.uid], live[GREEDY.uid].id, timeout_seconds=5
        )
        assert (ended.outcome.status, ended.outcome.limit_owner) == ("OUTPUT_LIMIT", "host")
        assert await on.left(MODEST) == {old[MODEST.uid], live[MODEST.uid].id}
        assert not live[MODEST.uid].is_finished


async def test_what_there_was_when_the_daemon_started_is_nobodys_growth() -> None:
    async with host() as on:
        on.world.free_bytes = 0
        old = await on.printed(GREEDY, 4 * GIB)
        assert await on.left(GREEDY) == {old}
        new = await on.printed(GREEDY, GIB)
        assert new not in await on.left(GREEDY)
        assert await on.left(GREEDY) == {old}
