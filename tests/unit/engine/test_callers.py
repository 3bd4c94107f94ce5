# SPDX-License-Identifier: Apache-2.0
"""What one owner may have together, and what a retry of the same request finds."""

from __future__ import annotations

import asyncio

import pytest

from sandboxd.core.model import Caller, Command, LimitChanges
from sandboxd.core.policy import CallerQuota
from sandboxd.engine.requests import ExecutionRequest, Origin, SandboxChanges, SandboxRequest
from sandboxd.errors import QuotaExceeded
from tests.unit.fakes.engine import make_engine
from tests.unit.fakes.world import World
from tests.unit.values import LIMITS

ME = Caller(1000, 1000, 1, is_admin=False)
OTHER = Caller(1001, 1001, 1, is_admin=False)
RUN = ExecutionRequest(Command(argv=("true",)))
GIB = LIMITS.memory_bytes
SMALL = LimitChanges(memory_bytes=GIB // 4)


async def test_sandboxes_of_an_owner_are_counted_also_while_they_are_made() -> None:
    engine, context = make_engine(World())
    context.registry.quota = CallerQuota(sandboxes=2)
    made = await asyncio.gather(
        *(engine.create_sandbox(ME, SandboxRequest(limits=SMALL)) for _ in range(4)),
        return_exceptions=True,
    )
    refused = [error for error in made if isinstance(error, QuotaExceeded)]
    assert len(refused) == 2
    assert refused[0].details == {"quota": "sandboxes", "maximum": 2, "used": 2, "asked": 1}
    await engine.create_sandbox(OTHER, SandboxRequest(limits=SMALL))


async def test_a_release_gives_room() -> None:
    engine, context = make_engine(World())
    context.registry.quota = CallerQuota(sandboxes=1)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        with pytest.raises(QuotaExceeded):
            await engine.create_sandbox(ME, SandboxRequest())
        await engine.release_sandbox(ME, sandbox.id)
        await engine.create_sandbox(ME, SandboxRequest())


async def test_memory_of_an_owner_is_the_sum_also_on_a_change() -> None:
    engine, context = make_engine(World())
    context.registry.quota = CallerQuota(memory_bytes=GIB)
    sandbox = await engine.create_sandbox(ME, SandboxRequest(limits=SMALL))
    with pytest.raises(QuotaExceeded) as caught:
        await engine.create_sandbox(ME, SandboxRequest())
    assert caught.value.details == {
        "quota": "memory_bytes", "maximum": GIB, "used": GIB // 4, "asked": GIB,
    }  # fmt: skip
    for memory_bytes, fits in ((GIB, True), (GIB + 1, False), (GIB // 2, True)):
        asked = SandboxChanges(LimitChanges(memory_bytes=memory_bytes))
        change = engine.change_sandbox(ME, sandbox.id, asked)
        if fits:
            assert (await change).limits.memory_bytes == memory_bytes
        else:
            with pytest.raises(QuotaExceeded):
                await change


async def test_executions_of_an_owner_are_counted_over_all_sandboxes() -> None:
    world = World()
    engine, context = make_engine(world)
    context.registry.quota = CallerQuota(executions=2)
    async with context.tasks:
        one, two = [await engine.create_sandbox(ME, SandboxRequest()) for _ in range(2)]
        first = await engine.start_execution(ME, one.id, RUN)
        await engine.start_execution(ME, two.id, RUN)
        with pytest.raises(QuotaExceeded) as caught:
            await engine.start_execution(ME, two.id, RUN)
        assert caught.value.details["quota"] == "executions"
        # A run that does not start leaves no sandbox either.
        with pytest.raises(QuotaExceeded):
            await engine.run(ME, SandboxRequest(), RUN)
        assert len(engine.list_sandboxes(ME)) == 2
        world.shims[first.id].finish()
        await engine.wait_execution(ME, one.id, first.id, None)
        await engine.start_execution(ME, two.id, RUN)
        for sandbox in (one, two):
            await engine.release_sandbox(ME, sandbox.id)


async def test_a_retry_finds_what_the_first_sending_made() -> None:
    engine, context = make_engine(World())
    first, again = Origin("rrrrrrrrrrrr"), Origin("rrrrrrrrrrrr", is_retry=True)
    async with context.tasks:
        made = await engine.create_sandbox(ME, SandboxRequest(origin=first))
        assert await engine.create_sandbox(ME, SandboxRequest(origin=again)) is made
        command = RUN.command
        ran = await engine.start_execution(ME, made.id, ExecutionRequest(command, origin=first))
        retried = ExecutionRequest(command, origin=again)
        assert await engine.start_execution(ME, made.id, retried) is ran
        await engine.release_sandbox(ME, made.id)
        # It ended with its sandbox meanwhile, and is the answer nevertheless.
        assert await engine.start_execution(ME, made.id, retried) is ran
        one = Origin("ssssssssssss")
        run = await engine.run(ME, SandboxRequest(origin=one), ExecutionRequest(command))
        one = Origin("ssssssssssss", is_retry=True)
        assert await engine.run(ME, SandboxRequest(origin=one), ExecutionRequest(command)) is run
        # Of somebody else it finds nothing.
        other = await engine.create_sandbox(OTHER, SandboxRequest(origin=again))
        assert other.id != made.id
        await engine.release_sandbox(OTHER, other.id)
        await engine.release_sandbox(ME, run.sandbox_id)


async def test_a_retry_of_what_made_nothing_makes_it() -> None:
    engine, context = make_engine(World())
    lost = Origin("rrrrrrrrrrrr", is_retry=True)
    async with context.tasks:
        made = await engine.create_sandbox(ME, SandboxRequest(origin=lost))
        ran = await engine.start_execution(ME, made.id, ExecutionRequest(RUN.command, origin=lost))
        assert [one.id for one in engine.list_executions(ME)] == [ran.id]
        await engine.release_sandbox(ME, made.id)
