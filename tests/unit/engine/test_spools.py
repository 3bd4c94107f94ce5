# SPDX-License-Identifier: Apache-2.0
"""A disk that gets full of output: who has most loses, first what has ended."""

from __future__ import annotations

from sandboxd.core.model import Caller, Command, LimitChanges
from sandboxd.engine.requests import ExecutionRequest, SandboxRequest
from sandboxd.engine.spools import MODEST_BYTES, Spools
from tests.unit.engine.fakes.engine import make_engine
from tests.unit.engine.fakes.world import World
from tests.unit.values import LIMITS

GREEDY = Caller(1000, 1000, 1, is_admin=False)
MODEST = Caller(1001, 1001, 1, is_admin=False)
RUN = ExecutionRequest(Command(argv=("true",)))
SMALL = SandboxRequest(limits=LimitChanges(memory_bytes=LIMITS.memory_bytes // 4))
GIB = 1 << 30


async def test_whoever_prints_most_makes_room() -> None:
    world = World()
    engine, context = make_engine(world)
    spools = Spools(context)
    async with context.tasks:
        boxes = {each.uid: await engine.create_sandbox(each, SMALL) for each in (GREEDY, MODEST)}
        ran: dict[int, list[str]] = {}
        for caller in (GREEDY, MODEST):
            for size in (2 * GIB, GIB) if caller is GREEDY else (MODEST_BYTES // 2,):
                one = await engine.start_execution(caller, boxes[caller.uid].id, RUN)
                world.shims[one.id].finish(size=size)
                running = context.registry.find(caller, one.sandbox_id).execution(one.id)
                await running.collected.wait()
                ran.setdefault(caller.uid, []).append(one.id)
        live = {each.uid: await engine.start_execution(each, boxes[each.uid].id, RUN)
                for each in (GREEDY, MODEST)}  # fmt: skip
        world.spools = {live[GREEDY.uid].id: GIB // 2, live[MODEST.uid].id: MODEST_BYTES // 4}

        async def left(caller: Caller) -> set[str]:
            await spools.pass_once()
            return {each.id for each in engine.list_executions(caller)}

        everything = {*ran[GREEDY.uid], live[GREEDY.uid].id}
        world.floor_bytes, world.free_bytes = GIB, 2 * GIB
        assert await left(GREEDY) == everything
        world.free_bytes = GIB
        assert await left(GREEDY) == everything - {ran[GREEDY.uid][0]}
        assert not live[GREEDY.uid].is_finished
        # With nothing to be had from what has ended, what runs and prints has its end.
        world.free_bytes = 0
        assert await left(GREEDY) == {live[GREEDY.uid].id}
        ended = await engine.wait_execution(GREEDY, boxes[GREEDY.uid].id, live[GREEDY.uid].id, 5)
        assert (ended.outcome.status, ended.outcome.limit_owner) == ("OUTPUT_LIMIT", "host")
        assert await left(MODEST) == {*ran[MODEST.uid], live[MODEST.uid].id}
        assert not live[MODEST.uid].is_finished
        for caller in (GREEDY, MODEST):
            await engine.release_sandbox(caller, boxes[caller.uid].id)
