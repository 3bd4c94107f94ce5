# SPDX-License-Identifier: Apache-2.0
"""What no event told is found by the second of two looks."""

from __future__ import annotations

import pytest

from sandboxd.core.model import Caller, Command
from sandboxd.engine.executions import Executions
from sandboxd.engine.reconcile import Reconcile
from sandboxd.engine.requests import ExecutionRequest, SandboxRequest
from sandboxd.engine.sandboxes import Sandboxes
from tests.unit.fakes.engine import make_engine
from tests.unit.fakes.world import World

ME = Caller(1000, 1000, 1, is_admin=False)
RUN = ExecutionRequest(Command(argv=("true",)))


async def test_a_sandbox_whose_place_is_gone_is_released() -> None:
    world = World()
    engine, context = make_engine(world)
    reconcile = Reconcile(context, Sandboxes(context), Executions(context))
    async with context.tasks:
        gone = await engine.create_sandbox(ME, SandboxRequest())
        there = await engine.create_sandbox(ME, SandboxRequest())
        world.held.discard(f"slice {gone.id}")
        await reconcile.pass_once()
        assert str(gone.state) == "ready"
        await reconcile.pass_once()
        await engine.release_sandbox(ME, gone.id)
        assert [str(gone.state), str(there.state)] == ["released", "ready"]
        await engine.release_sandbox(ME, there.id)


async def test_processes_without_an_execution_are_ended_and_those_of_one_are_not() -> None:
    world = World()
    engine, context = make_engine(world)
    reconcile = Reconcile(context, Sandboxes(context), Executions(context))
    async with context.tasks:
        idle = await engine.create_sandbox(ME, SandboxRequest())
        busy = await engine.create_sandbox(ME, SandboxRequest())
        await engine.start_execution(ME, busy.id, RUN)
        world.stuck_uids |= {idle.uid, busy.uid}
        await reconcile.pass_once()
        assert f"sweep {idle.id}" not in world.calls
        await reconcile.pass_once()
        assert f"sweep {idle.id}" in world.calls
        assert f"sweep {busy.id}" not in world.calls
        world.stuck_uids.clear()
        for box in (idle, busy):
            await engine.release_sandbox(ME, box.id)


async def test_an_execution_whose_watcher_broke_still_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    engine, context = make_engine(world)
    reconcile = Reconcile(context, Sandboxes(context), Executions(context))
    async with context.tasks:
        box = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, box.id, RUN)
        with monkeypatch.context() as broken:
            broken.setattr(Executions, "conclude", None)
            world.shims[execution.id].finish(wait_status=3 << 8)
            watcher = context.registry.find(ME, box.id).execution(execution.id).watcher
            assert watcher is not None
            await watcher
        assert not execution.is_finished
        await reconcile.pass_once()
        ended = await engine.wait_execution(ME, box.id, execution.id, 5)
        assert ended.outcome.exit_code == 3
        await engine.release_sandbox(ME, box.id)
