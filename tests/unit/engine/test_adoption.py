# SPDX-License-Identifier: Apache-2.0
"""The next daemon: knows what the earlier one knew, and counts its times on."""

from __future__ import annotations

import asyncio
from typing import Any

from sandboxd.core.model import (
    Caller,
    Command,
    ErrorCode,
    ExecutionStatus,
    Outcome,
    Sandbox,
    SandboxState,
)
from sandboxd.engine.context import Context
from sandboxd.engine.engine import Engine
from sandboxd.engine.requests import ExecutionRequest, SandboxRequest
from sandboxd.engine.sandboxes import Sandboxes
from tests.unit.fakes.engine import make_engine, make_upkeep
from tests.unit.fakes.world import World

ME = Caller(1000, 1000, 1, is_admin=False)
RUN = ExecutionRequest(Command(argv=("true",)))


def next_daemon(world: World, **settings: Any) -> tuple[Engine, Context]:
    """An engine over what an earlier one left in the world."""
    engine, context = make_engine(world, **settings)
    # The test's own, so that it knows when there was a round.
    engine._upkeep.start = lambda: None  # type: ignore[method-assign]
    return engine, context


def make_pending(world: World, execution_id: str) -> None:
    """Have the record say what it says before the answer of the shim."""
    record = world.saved_executions[execution_id]
    record.outcome, record.started_at = Outcome(ExecutionStatus.PENDING), None


async def look(context: Context) -> None:
    await make_upkeep(context).pass_once()


async def ended(engine: Engine, context: Context, world: World, box: Sandbox) -> str:
    execution = await engine.start_execution(ME, box.id, RUN)
    world.shims[execution.id].finish()
    await context.registry.find(ME, box.id).execution(execution.id).collected.wait()
    del world.shims[execution.id]
    return execution.id


async def test_idle_time_and_lifetime_go_on() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        idle = await engine.create_sandbox(ME, SandboxRequest(idle_timeout_seconds=10))
        short = await engine.create_sandbox(ME, SandboxRequest(lifetime_seconds=15))
        world.seconds += 5
        await ended(engine, context, world, idle)
        context.tasks.cancel_all()
    world.seconds += 6
    engine, context = next_daemon(world)
    async with context.tasks:
        await engine.open()
        await look(context)
        states = [engine.get_sandbox(ME, box.id).state for box in (idle, short)]
        assert states == [SandboxState.READY] * 2
        world.seconds += 5
        await look(context)
        for box in (idle, short):
            release = context.registry.find(ME, box.id).release
            assert release is not None
            await release


async def test_retention_goes_on() -> None:
    world = World()
    engine, context = make_engine(world, retention_seconds=100.0)
    async with context.tasks:
        box = await engine.create_sandbox(ME, SandboxRequest())
        gone = await engine.create_sandbox(ME, SandboxRequest())
        await ended(engine, context, world, box)
        await engine.release_sandbox(ME, gone.id)
        world.seconds += 60
        late = await ended(engine, context, world, box)
        context.tasks.cancel_all()
    engine, context = next_daemon(world, retention_seconds=100.0)
    async with context.tasks:
        await engine.open()
        await look(context)
        assert len(engine.list_executions(ME)) == 2
        assert len(engine.list_sandboxes(ME)) == 2
        world.seconds += 60
        await look(context)
        assert [e.id for e in engine.list_executions(ME)] == [late]
        assert [s.id for s in engine.list_sandboxes(ME)] == [box.id]
        await engine.release_sandbox(ME, box.id)


async def test_a_release_that_was_cut_short_goes_on_for_the_same_cause() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        box = await engine.create_sandbox(ME, SandboxRequest(lifetime_seconds=15))
        execution = await engine.start_execution(ME, box.id, RUN)
        live = context.registry.find(ME, box.id)
        # What the release waits for before it ends anything.
        live.starting = 1
        world.seconds += 20
        await look(context)
        while world.calls[-1] != "save_sandbox":  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        # Whoever asks next does not change why.
        assert Sandboxes(context).start_release(live, ErrorCode.RELEASED) is live.release
        context.tasks.cancel_all()
    engine, context = next_daemon(world)
    async with context.tasks:
        await engine.open()
        release = context.registry.find(ME, box.id).release
        assert release is not None
        await release
        ended = engine.get_execution(ME, box.id, execution.id)
        assert ended.outcome.error_code is ErrorCode.EXPIRED


async def test_a_drained_host_stays_drained() -> None:
    world = World()
    engine, context = make_engine(world)
    assert (await engine.set_draining(draining=True)).draining
    engine, context = next_daemon(world)
    async with context.tasks:
        await engine.open()
        assert engine.host().draining
        assert not engine.host().ready
        assert not (await engine.set_draining(draining=False)).draining


async def test_a_command_that_was_started_before_anybody_was_told_goes_on() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        box = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, box.id, RUN)
        context.tasks.cancel_all()
    make_pending(world, execution.id)
    engine, context = next_daemon(world)
    async with context.tasks:
        await engine.open()
        adopted = engine.get_execution(ME, box.id, execution.id)
        assert str(adopted.outcome.status) == "RUNNING"
        assert adopted.started_at is not None
        world.shims[execution.id].finish(wait_status=3 << 8)
        ended = await engine.wait_execution(ME, box.id, execution.id, 5)
        assert ended.outcome.exit_code == 3
        await engine.release_sandbox(ME, box.id)


async def test_a_start_that_had_not_got_to_its_command_is_taken_back() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        box = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, box.id, RUN)
        context.tasks.cancel_all()
    make_pending(world, execution.id)
    world.shims[execution.id].started_at = None
    engine, context = next_daemon(world)
    async with context.tasks:
        await engine.open()
        assert engine.list_executions(ME) == []
        assert world.shims[execution.id].orders == ["destroy"]
        assert f"record {execution.id}" not in world.held
        await engine.release_sandbox(ME, box.id)


async def test_a_full_disk_does_not_keep_a_daemon_from_starting() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        box = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, box.id, RUN)
        context.tasks.cancel_all()
    del world.shims[execution.id]
    world.full = True
    engine, context = next_daemon(world)
    async with context.tasks:
        await engine.open()
        assert str(engine.get_execution(ME, box.id, execution.id).outcome.status) == "LOST"
        await engine.release_sandbox(ME, box.id)
