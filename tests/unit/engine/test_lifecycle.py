# SPDX-License-Identifier: Apache-2.0
"""Nothing half made, nothing promised twice, nothing forgotten."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest

from sandboxd.core.levels import Findings, offers
from sandboxd.core.model import (
    Bind,
    Caller,
    Command,
    ErrorCode,
    Isolation,
    LimitChanges,
    Network,
    Ownership,
    Sandbox,
    SandboxState,
)
from sandboxd.engine import batch
from sandboxd.engine.batch import Reading
from sandboxd.engine.context import Context
from sandboxd.engine.executions import wait_finished
from sandboxd.engine.requests import ExecutionRequest, SandboxChanges, SandboxRequest
from sandboxd.engine.sandboxes import Sandboxes
from sandboxd.engine.upkeep import Upkeep
from sandboxd.errors import (
    AccessDenied,
    CapacityExceeded,
    ExecutionLimitReached,
    IsolationUnsupported,
    LimitBelowUsage,
    NameInUse,
    OperationTimedOut,
    SandboxNotFound,
    SandboxReleased,
    SandboxSuspended,
)
from tests.unit.fake_files import FakeFiles
from tests.unit.fakes.engine import make_engine, make_upkeep
from tests.unit.fakes.stores import FakeWorkspaces
from tests.unit.fakes.world import Broken, World
from tests.unit.values import LIMITS

ME = Caller(1000, 1000, 1, is_admin=False)
OTHER = Caller(1001, 1001, 1, is_admin=False)
ROOT = Caller(0, 0, 1, is_admin=True)
RUN = ExecutionRequest(Command(argv=("true",)))
GIB = LIMITS.memory_bytes


def upkeep_of(context: Context) -> Upkeep:
    return make_upkeep(context)


@pytest.mark.parametrize(
    "step", ["take_uid", "create_workspace", "save_sandbox", "create_sandbox", "build_root"]
)
async def test_a_create_that_breaks_leaves_nothing(step: str) -> None:
    world = World()
    engine, context = make_engine(world)
    world.breaks = step
    with pytest.raises(Broken):
        await engine.create_sandbox(ME, SandboxRequest(name="box"))
    assert world.held == set()
    assert context.registry.committed_bytes == 0
    world.breaks = None
    assert (await engine.create_sandbox(ME, SandboxRequest(name="box"))).name == "box"


@pytest.mark.parametrize("step", ["create_execution", "save_execution", "launch", "place", "go"])
async def test_a_start_that_breaks_leaves_nothing(step: str) -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        before = set(world.held)
        world.breaks = step
        for _ in range(5):
            with pytest.raises(Broken):
                await engine.start_execution(ME, sandbox.id, RUN)
        assert world.held == before
        assert engine.list_executions(ME) == []
        with pytest.raises(Broken):
            await engine.run(ME, SandboxRequest(), RUN)
        assert world.held == before
        world.breaks = None
        await engine.start_execution(ME, sandbox.id, RUN)
        await engine.release_sandbox(ME, sandbox.id)
    assert {what.split()[0] for what in world.held} == {"record"}


async def test_budget_and_names_are_held_while_a_sandbox_is_made() -> None:
    engine, context = make_engine(World())
    made = await asyncio.gather(
        *(engine.create_sandbox(ME, SandboxRequest()) for _ in range(6)), return_exceptions=True
    )
    refused = [error for error in made if isinstance(error, CapacityExceeded)]
    assert len(refused) == 2
    assert context.registry.committed_bytes == 4 * GIB
    engine, _ = make_engine(World())
    named = await asyncio.gather(
        *(engine.create_sandbox(ME, SandboxRequest(name="box")) for _ in range(2)),
        return_exceptions=True,
    )
    assert [type(error) for error in named if isinstance(error, Exception)] == [NameInUse]


async def test_others_sandboxes_do_not_exist() -> None:
    engine, _ = make_engine(World())
    sandbox = await engine.create_sandbox(ME, SandboxRequest(name="box"))
    for reference in (sandbox.id, "box"):
        with pytest.raises(SandboxNotFound):
            engine.get_sandbox(OTHER, reference)
    assert engine.list_sandboxes(OTHER) == []
    assert engine.get_sandbox(ROOT, sandbox.id) is sandbox
    with pytest.raises(SandboxNotFound):
        engine.get_sandbox(ROOT, "box")
    assert (await engine.create_sandbox(OTHER, SandboxRequest(name="box"))).owner_uid == 1001


async def test_releases_end_executions_and_meet_in_one() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, sandbox.id, RUN)
        await asyncio.gather(*(engine.release_sandbox(ME, sandbox.id) for _ in range(3)))
    assert world.calls.count("release_sandbox") == 1
    assert execution.outcome.error_code is ErrorCode.RELEASED
    assert sandbox.state is SandboxState.RELEASED
    assert context.registry.committed_bytes == 0
    with pytest.raises(SandboxReleased):
        await engine.start_execution(ME, sandbox.id, RUN)


async def test_a_uid_that_is_busy_keeps_its_sandbox_releasing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sandboxd.engine.sandboxes._UID_SECONDS", 0.0)
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        world.stuck_uids.add(sandbox.uid)
        live = context.registry.find(ME, sandbox.id)
        await Sandboxes(context).start_release(live, ErrorCode.RELEASED)
        assert sandbox.state is SandboxState.RELEASING
        assert context.registry.committed_bytes == GIB
        assert f"uid {sandbox.uid}" in world.held
        upkeep, retried = upkeep_of(context), []
        for second in range(16):
            before = live.release
            await upkeep.pass_once()
            assert live.release is not None
            await live.release
            if live.release is not before:
                retried.append(second)
            world.seconds += 1
        # Each after twice as long, with a line each.
        assert retried == [2, 6, 14]
        assert [line.message.partition(": ")[0].split(",")[-1] for line in caplog.records] == [
            f" trying again in {seconds} s" for seconds in (2, 4, 8, 16)
        ]
        # One that a caller asked for says nothing, and puts nothing off.
        await Sandboxes(context).start_release(live, ErrorCode.RELEASED)
        assert len([line for line in caplog.records if line.levelname == "ERROR"]) == 4
        world.stuck_uids.clear()
        world.seconds += 14
        await upkeep.pass_once()
        await Sandboxes(context).release(live, ErrorCode.RELEASED)
        assert str(sandbox.state) == "released"
    assert world.held == set()


async def test_a_suspend_that_breaks_before_anything_is_stopped_is_none() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, sandbox.id, RUN)
        world.breaks = "suspend_sandbox"
        with pytest.raises(Broken):
            await engine.suspend_sandbox(ME, sandbox.id)
        assert sandbox.state is SandboxState.READY
        assert not world.shims[execution.id].frozen
        world.breaks = None
        await engine.suspend_sandbox(ME, sandbox.id)
        assert world.shims[execution.id].frozen
        await engine.release_sandbox(ME, sandbox.id)


async def test_suspended_refuses_and_resumed_takes() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, sandbox.id, RUN)
        await engine.suspend_sandbox(ME, sandbox.id)
        assert world.shims[execution.id].frozen
        with pytest.raises(SandboxSuspended):
            await engine.start_execution(ME, sandbox.id, RUN)
        await engine.resume_sandbox(ME, sandbox.id)
        assert not world.shims[execution.id].frozen
        await engine.release_sandbox(ME, sandbox.id)


async def test_executions_at_once_are_bounded() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        begun = [await engine.start_execution(ME, sandbox.id, RUN) for _ in range(3)]
        with pytest.raises(ExecutionLimitReached):
            await engine.start_execution(ME, sandbox.id, RUN)
        world.shims[begun[0].id].finish()
        await engine.wait_execution(ME, sandbox.id, begun[0].id, 5)
        await engine.start_execution(ME, sandbox.id, RUN)
        await engine.release_sandbox(ME, sandbox.id)


async def change(engine: object, sandbox_id: str, memory: int, *, force: bool = False) -> None:
    asked = SandboxChanges(LimitChanges(memory_bytes=memory), force=force)
    await engine.change_sandbox(ME, sandbox_id, asked)  # type: ignore[attr-defined]


async def test_a_change_reaches_running_executions_or_nothing() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        follows = await engine.start_execution(ME, sandbox.id, RUN)
        own = ExecutionRequest(Command(argv=("true",)), LimitChanges(memory_bytes=GIB // 4))
        keeps = await engine.start_execution(ME, sandbox.id, own)
        await change(engine, sandbox.id, GIB // 2)
        assert follows.limits.memory_bytes == GIB // 2
        assert keeps.limits.memory_bytes == GIB // 4
        world.memory_used = GIB // 3
        with pytest.raises(LimitBelowUsage) as caught:
            await change(engine, sandbox.id, GIB // 8)
        assert caught.value.details["current"] == GIB // 3
        await change(engine, sandbox.id, GIB // 8, force=True)
        assert keeps.limits.memory_bytes == GIB // 8
        with pytest.raises(CapacityExceeded):
            await change(engine, sandbox.id, 5 * GIB)
        world.breaks = "change_limits"
        with pytest.raises(Broken):
            await change(engine, sandbox.id, GIB)
        assert sandbox.limits.memory_bytes == GIB // 8
        assert context.registry.committed_bytes == GIB // 8
        world.breaks = None
        await engine.release_sandbox(ME, sandbox.id)


async def test_a_run_takes_its_sandbox_away() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        execution = await engine.run(ME, SandboxRequest(), RUN)
        world.shims[execution.id].finish(wait_status=3 << 8)
        await engine.wait_execution(ME, execution.sandbox_id, execution.id, 5)
        live = context.registry.find(ME, execution.sandbox_id)
        await engine.release_sandbox(ME, live.sandbox.id)
    assert engine.get_sandbox(ME, execution.sandbox_id).state is SandboxState.RELEASED
    assert engine.get_execution(ME, execution.sandbox_id, execution.id).outcome.exit_code == 3


async def test_a_run_s_sandbox_stays_until_its_files_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    engine, context = make_engine(world)
    upkeep = upkeep_of(context)
    home = FakeFiles({b"f": b"data"})
    monkeypatch.setattr(FakeWorkspaces, "files", lambda *_, **__: home)
    async with context.tasks:
        with Reading((b"f",)) as reading:
            execution = await engine.run(ME, SandboxRequest(), RUN, reading=reading)
            live = context.registry.find(ME, execution.sandbox_id)
            world.shims[execution.id].finish()
            assert await reading.size_bytes() == 4
            await upkeep.pass_once()
            assert live.sandbox.state is SandboxState.READY
            assert home.opened == []
            assert [file.data for file in await reading.files()] == [b"data"]
        await engine.wait_execution(ME, execution.sandbox_id, execution.id, 5)
        assert engine.get_sandbox(ME, execution.sandbox_id).state is SandboxState.RELEASED
        # Nobody waits for what nobody wants.
        with Reading((b"f",)) as reading:
            execution = await engine.run(ME, SandboxRequest(), RUN, reading=reading)
        world.shims[execution.id].finish()
        await engine.wait_execution(ME, execution.sandbox_id, execution.id, 5)
        assert engine.get_sandbox(ME, execution.sandbox_id).state is SandboxState.RELEASED
        assert home.opened == [b"f"]


async def test_a_file_that_grew_since_there_was_room_for_it_is_not_read() -> None:
    home = FakeFiles({b"grows": b"1", b"large": bytes(batch.MAX_READ_BYTES), b"f": b"2"})
    with Reading(tuple(home.contents)) as reading:
        task = asyncio.create_task(reading.read(home.use))
        # Together one byte more than may be.
        assert await reading.size_bytes() == 2
        home.contents[b"grows"] += b"3"
        grown, large, small = await reading.files()
        await task
    assert (grown.data, large.data, small.data) == (b"", b"", b"2")
    for each in (grown, large):
        assert each.error is not None
        assert each.error.code == "REQUEST_TOO_LARGE"


async def test_lifetime_and_idle_time_end_a_sandbox() -> None:
    world = World()
    engine, context = make_engine(world)
    upkeep = upkeep_of(context)
    async with context.tasks:
        short = await engine.create_sandbox(ME, SandboxRequest(lifetime_seconds=10))
        idle = await engine.create_sandbox(ME, SandboxRequest(idle_timeout_seconds=10))
        busy = await engine.create_sandbox(ME, SandboxRequest(idle_timeout_seconds=10))
        killed = await engine.start_execution(ME, short.id, RUN)
        await engine.start_execution(ME, busy.id, RUN)
        world.seconds += 9
        await upkeep.pass_once()
        states = [box.state for box in (short, idle, busy)]
        assert states == [SandboxState.READY] * 3
        world.seconds += 2
        await upkeep.pass_once()
        for box in (short, idle):
            release = context.registry.find(ME, box.id).release
            assert release is not None
            await release
        assert killed.outcome.error_code is ErrorCode.EXPIRED
        assert busy.state is SandboxState.READY
        await engine.release_sandbox(ME, busy.id)


async def test_records_are_kept_for_a_time_and_a_number() -> None:
    world = World()
    engine, context = make_engine(world, retention_executions=2, retention_seconds=100.0)
    upkeep = upkeep_of(context)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        ids = []
        for _ in range(4):
            execution = await engine.start_execution(ME, sandbox.id, RUN)
            world.shims[execution.id].finish(size=10)
            running = context.registry.find(ME, sandbox.id).execution(execution.id)
            await wait_finished(running, 5)
            await running.collected.wait()
            ids.append(execution.id)
            world.seconds += 1
        await upkeep.pass_once()
        assert [e.id for e in engine.list_executions(ME)] == ids[2:]
        world.seconds += 200
        await upkeep.pass_once()
        assert engine.list_executions(ME) == []
        await engine.release_sandbox(ME, sandbox.id)
        world.seconds += 200
        await upkeep.pass_once()
        assert engine.list_sandboxes(ME) == []
    assert world.held == set()


@pytest.mark.parametrize(
    "bound", [{"retention_output_bytes": 25}, {"retention_argument_bytes": 25}]
)
async def test_records_are_kept_up_to_a_size_oldest_first(bound: dict[str, int]) -> None:
    world = World()
    engine, context = make_engine(world, **bound)
    upkeep = upkeep_of(context)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        ids = []
        for _ in range(4):
            command = Command(argv=("true", "......"))
            execution = await engine.start_execution(ME, sandbox.id, ExecutionRequest(command))
            world.shims[execution.id].finish(size=10)
            await context.registry.find(ME, sandbox.id).execution(execution.id).collected.wait()
            ids.append(execution.id)
            world.seconds += 1
        await upkeep.pass_once()
        assert [e.id for e in engine.list_executions(ME)] == ids[2:]
        assert {what for what in world.held if "record" in what} == {
            f"record {name}" for name in ids[2:]
        }
        await engine.release_sandbox(ME, sandbox.id)


async def test_a_shim_that_dies_is_a_lost_execution() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, sandbox.id, RUN)
        world.shims[execution.id].die()
        ended = await engine.wait_execution(ME, sandbox.id, execution.id, 5)
        assert (ended.outcome.status, ended.outcome.error_code) == ("LOST", "EXECUTION_LOST")
        await engine.release_sandbox(ME, sandbox.id)


async def test_a_hung_shim_is_ended_past_its_deadline_and_suspended_time_does_not_count() -> None:
    world = World()
    engine, context = make_engine(world)
    upkeep = upkeep_of(context)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, sandbox.id, RUN)
        await engine.suspend_sandbox(ME, sandbox.id)
        world.seconds += 10_000
        await upkeep.pass_once()
        await engine.resume_sandbox(ME, sandbox.id)
        world.seconds += LIMITS.timeout_seconds
        await upkeep.pass_once()
        assert "destroy" not in world.shims[execution.id].orders
        world.seconds += 40
        await upkeep.pass_once()
        assert world.shims[execution.id].orders == ["destroy"]
        ended = await engine.wait_execution(ME, sandbox.id, execution.id, 5)
        assert (ended.outcome.status, ended.outcome.error_code) == ("TIMED_OUT", "SANDBOX_TIMEOUT")
        await engine.release_sandbox(ME, sandbox.id)


async def test_a_place_that_cannot_be_had_is_refused_before_anything_is_made() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        for request in (
            SandboxRequest(isolation="standard"),
            SandboxRequest(network="none"),
            SandboxRequest(rootfs="debian"),
            SandboxRequest(binds=(Bind("/data", "/data"),)),
        ):
            with pytest.raises(IsolationUnsupported):
                await engine.create_sandbox(ME, request)
        assert not world.calls
        made = await engine.create_sandbox(ME, SandboxRequest(isolation="auto"))
        assert (made.isolation, made.network) == (Isolation.BASIC, Network.HOST)
        context.tasks.cancel_all()


async def test_a_sandbox_gets_the_place_it_asked_for() -> None:
    world = World()
    able = offers(Findings(is_root=True, kernel_limits=True), "auto")
    engine, context = make_engine(world, offers=able)
    async with context.tasks:
        made = await engine.create_sandbox(ME, SandboxRequest())
        assert (made.isolation, made.network) == (Isolation.STANDARD, Network.LOOPBACK)
        binds = (Bind("/data", "/data"),)
        request = SandboxRequest(isolation="strict", network="none", rootfs="x", binds=binds)
        made = await engine.create_sandbox(ME, request)
        assert (made.isolation, made.network) == (Isolation.STRICT, Network.NONE)
        mapped = replace(binds[0], ownership=Ownership.MAPPED)
        assert (made.rootfs, made.binds) == ("x", (mapped,))
        # What became of them is on disk as well.
        assert world.calls[-2:] == ["build_root", "save_sandbox"]
        binds = (Bind("/etc", "/data"),)
        with pytest.raises(AccessDenied):
            await engine.create_sandbox(ME, SandboxRequest(binds=binds))
        context.tasks.cancel_all()


async def test_a_release_that_fails_is_said_in_a_line_and_tried_again_less_and_less(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    engine, context = make_engine(world)
    upkeep = upkeep_of(context)
    tries = []

    async def broken(sandbox: Sandbox) -> None:
        tries.append(world.seconds)
        if len(tries) <= 3:
            raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(context.workspaces, "remove_contents", broken)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        live = context.registry.find(ME, sandbox.id)
        with pytest.raises(OperationTimedOut):
            await engine.release_sandbox(ME, sandbox.id)
        for _ in range(20):
            world.seconds += 1
            await upkeep.pass_once()
            assert live.release is not None
            await live.release
        assert [at - tries[0] for at in tries] == [0, 2, 6, 14]
        assert live.is_over
    said = [record for record in caplog.records if "Cannot finish" in record.message]
    assert [record.exc_info for record in said] == [None] * 3
    assert "Read-only file system" in said[0].message


async def test_a_release_ends_an_execution_that_no_order_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandboxd.engine.executions._LAST_SECONDS", 0.0)
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, sandbox.id, RUN)
        world.shims[execution.id].is_deaf = True
        await engine.release_sandbox(ME, sandbox.id)
    assert world.shims[execution.id].orders == ["destroy"]
    assert execution.outcome.error_code is ErrorCode.RELEASED
    assert sandbox.state is SandboxState.RELEASED
    assert world.held == {f"record {execution.id}"}


async def test_nothing_is_released_while_a_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxd.engine.executions._KILL_ANSWER_SECONDS", 0.0)
    monkeypatch.setattr("sandboxd.engine.sandboxes._END_SECONDS", 0.0)
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox, other = [await engine.create_sandbox(ME, SandboxRequest()) for _ in range(2)]
        execution = await engine.start_execution(ME, sandbox.id, RUN)
        shim = world.shims[execution.id]
        shim.is_immortal = True
        with pytest.raises(OperationTimedOut, match=sandbox.id):
            await engine.release_all()
        assert [box.state for box in (sandbox, other)] == ["releasing", "released"]
        assert {f"uid {sandbox.uid}", f"slice {sandbox.id}"} <= world.held
        shim.is_immortal = False
        assert await engine.release_all() == 1
        assert await engine.release_all() == 0
        context.tasks.cancel_all()
    assert execution.outcome.error_code is ErrorCode.DRAINING
    assert world.held == {f"record {execution.id}"}


async def test_a_shim_that_lives_after_its_record_is_no_end() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, sandbox.id, RUN)
        shim = world.shims[execution.id]
        shim.is_immortal = True
        shim.finish()
        await context.registry.find(ME, sandbox.id).execution(execution.id).collected.wait()
        with pytest.raises(OperationTimedOut):
            await engine.release_sandbox(ME, sandbox.id)
        assert sandbox.state is SandboxState.RELEASING
        shim.is_immortal = False
        await engine.release_sandbox(ME, sandbox.id)
        assert str(sandbox.state) == "released"
    assert world.held == {f"record {execution.id}"}
