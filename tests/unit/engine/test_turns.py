# SPDX-License-Identifier: Apache-2.0
"""Who asks for very much at once waits for its own work, and keeps nobody else waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sandboxd.core.model import Caller, Command, LimitChanges, Sandbox
from sandboxd.core.policy import MIN_MEMORY_BYTES
from sandboxd.engine.engine import Engine
from sandboxd.engine.requests import ExecutionRequest, SandboxRequest
from tests.unit.fakes.engine import make_engine
from tests.unit.fakes.world import World

GREEDY = Caller(1000, 1000, 1, is_admin=False)
OTHER = Caller(1001, 1001, 1, is_admin=False)
MANY = 100
SMALL = SandboxRequest(limits=LimitChanges(memory_bytes=MIN_MEMORY_BYTES, pids=1))
RUN = ExecutionRequest(Command(argv=("true",)))

# Makes the work of a caller on a sandbox of that caller's.
Work = Callable[[Engine, Caller, Sandbox], Coroutine[Any, Any, object]]
WORK: dict[str, tuple[str, Work]] = {
    "creations": ("create_sandbox", lambda engine, caller, _: engine.create_sandbox(caller, SMALL)),
    "starts": ("launch", lambda engine, caller, box: engine.start_execution(caller, box.id, RUN)),
    "releases": (
        "kill_sandbox", lambda engine, caller, box: engine.release_sandbox(caller, box.id),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
async def test_work_of_one_caller_leaves_room_for_the_next(name: str) -> None:
    held_up, work = WORK[name]
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        boxes = [await engine.create_sandbox(GREEDY, SMALL) for _ in range(MANY)]
        others = await engine.create_sandbox(OTHER, SMALL)
        gate = world.gates[held_up] = asyncio.Event()

        def waiting() -> int:
            return world.calls.count(f"{held_up} waits")

        asked = [asyncio.create_task(work(engine, GREEDY, box)) for box in boxes]
        await world.until(waiting)
        # Each comes as far as the others let it.
        for _ in range(MANY):
            await asyncio.sleep(0)
        of_greedy = waiting()
        assert of_greedy < MANY // 4
        asked.append(asyncio.create_task(work(engine, OTHER, others)))
        await world.until(lambda: waiting() == of_greedy + 1)
        gate.set()
        await asyncio.gather(*asked)
        context.tasks.cancel_all()
