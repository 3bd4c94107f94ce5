# SPDX-License-Identifier: Apache-2.0
"""Who is counted when, and what happens to who is over the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sandboxd.core.model import (
    Caller,
    Command,
    EnforcedBy,
    ErrorCode,
    ExecutionStatus,
    LimitChanges,
    Outcome,
)
from sandboxd.engine.disk import DiskKeeper
from sandboxd.engine.engine import Engine
from sandboxd.engine.registry import LiveSandbox
from sandboxd.engine.requests import ExecutionRequest, SandboxChanges, SandboxRequest
from sandboxd.errors import DiskQuotaExceeded, DiskUncountable, HostDiskFull, LimitBelowUsage
from tests.unit.fakes.engine import make_engine
from tests.unit.fakes.world import World

ME = Caller(1000, 1000, 1, is_admin=False)
RUN = ExecutionRequest(Command(argv=("true",)))
MIB = 1 << 20


@asynccontextmanager
async def running(world: World) -> AsyncIterator[tuple[Engine, DiskKeeper, LiveSandbox]]:
    """A sandbox of 10 MiB with one execution."""
    engine, context = make_engine(world)
    async with context.tasks:
        asked = SandboxRequest(limits=LimitChanges(disk_bytes=10 * MIB))
        sandbox = await engine.create_sandbox(ME, asked)
        await engine.start_execution(ME, sandbox.id, RUN)
        yield engine, DiskKeeper(context), context.registry.find(ME, sandbox.id)
        context.tasks.cancel_all()


async def look(keeper: DiskKeeper) -> None:
    """A pass, and all that it begins."""
    await keeper.pass_once()
    await asyncio.gather(*keeper._looks.values())


def counts(world: World) -> int:
    return world.calls.count("disk_used")


async def test_is_counted_only_when_it_may_have_passed_its_limit() -> None:
    world = World()
    async with running(world) as (_, keeper, _live):
        world.disk_used = 4 * MIB
        await look(keeper)
        assert counts(world) == 1
        world.seconds += 1
        world.disk_growth = 5 * MIB
        await look(keeper)
        assert counts(world) == 1
        world.disk_growth = 6 * MIB
        await look(keeper)
        assert counts(world) == 2
        # What others delete hides growth: now and then it is looked at all the same.
        world.seconds += 11
        await look(keeper)
        assert counts(world) == 3


async def test_over_the_limit_ends_the_executions_and_lets_new_ones_delete() -> None:
    world = World()
    async with running(world) as (engine, keeper, live):
        world.disk_used = 12 * MIB
        await look(keeper)
        [first] = engine.list_executions(ME)
        assert first.outcome.status is ExecutionStatus.DISK_QUOTA_EXCEEDED
        sweeper = await engine.start_execution(ME, live.sandbox.id, RUN)
        for used in (12, 11, 11):
            world.seconds += 1
            world.disk_used = used * MIB
            await look(keeper)
            assert not sweeper.is_finished
        # Growing again is over again, though it was more once.
        world.seconds += 1
        world.disk_used = 12 * MIB
        await look(keeper)
        assert sweeper.outcome.status is ExecutionStatus.DISK_QUOTA_EXCEEDED


async def test_counting_rests_in_proportion_to_what_it_takes() -> None:
    world = World()
    async with running(world) as (_, keeper, _live):
        world.disk_seconds = 2.0
        world.disk_used = 4 * MIB
        await look(keeper)
        done = counts(world)
        world.disk_growth = 1 << 40
        # A tenth of a core.
        world.seconds += 17
        await look(keeper)
        assert counts(world) == done
        world.seconds += 2
        await look(keeper)
        assert counts(world) > done


async def test_who_makes_its_count_dear_is_counted_all_the_same() -> None:
    world = World()
    async with running(world) as (_, keeper, _live):
        world.disk_seconds = 0.5
        await look(keeper)
        done = counts(world)
        # At 2 % of a core it would be 25 seconds.
        world.seconds += 11
        await look(keeper)
        assert counts(world) == done + 1


async def test_no_sandbox_waits_for_another_one_s_count_nor_rests_for_it() -> None:
    world = World()
    async with running(world) as (engine, keeper, slow):
        world.disk_slow[slow.sandbox.id] = asyncio.Event()
        world.disk_seconds = 60.0
        await keeper.pass_once()
        asked = SandboxRequest(limits=LimitChanges(disk_bytes=10 * MIB))
        other = await engine.create_sandbox(ME, asked)
        execution = await engine.start_execution(ME, other.id, RUN)
        world.disk_used = 12 * MIB
        await keeper.pass_once()
        async with asyncio.timeout(10):
            await engine.wait_execution(ME, other.id, execution.id, 10)
        assert execution.outcome.status is ExecutionStatus.DISK_QUOTA_EXCEEDED
        # One that is being counted is not counted twice.
        under_way = len(keeper._looks)
        await keeper.pass_once()
        assert len(keeper._looks) == under_way
        world.disk_slow.pop(slow.sandbox.id).set()
        await asyncio.gather(*keeper._looks.values())
        assert len(keeper._looks) == 0


async def test_a_writer_takes_what_is_left_and_no_more() -> None:
    world = World()
    async with running(world) as (_, keeper, live):
        world.disk_used = 4 * MIB
        take = keeper.taker(live)
        await take(3 * MIB)
        await take(3 * MIB)
        # Counted again, and found to be as full as was thought.
        world.disk_used = 10 * MIB
        with pytest.raises(DiskQuotaExceeded):
            await take(1)
        world.disk_used = 2 * MIB
        await take(8 * MIB)


DESCRIPTORS = "over 262144 open descriptors"


async def test_what_cannot_be_counted_ends_nothing_while_it_must_be_within_its_limit() -> None:
    world = World()
    async with running(world) as (engine, keeper, live):
        world.disk_used = 4 * MIB
        await look(keeper)
        world.disk_obstacle = DESCRIPTORS
        [execution] = engine.list_executions(ME)
        for growth in (0, 2, 4, 6):
            world.seconds += 11
            world.disk_growth = growth * MIB
            await look(keeper)
            assert not execution.is_finished
            assert await keeper.used(live) is None
        world.seconds += 1
        world.disk_growth += 4096
        await look(keeper)
        code = ErrorCode.DISK_UNCOUNTABLE
        assert execution.outcome == Outcome(ExecutionStatus.KILLED, code, signal=9)
        with pytest.raises(DiskUncountable, match=DESCRIPTORS):
            await keeper.taker(live)(1)
        # Its descriptors are gone, and what it has is known.
        world.disk_obstacle = None
        world.seconds += 1
        later = await engine.start_execution(ME, live.sandbox.id, RUN)
        await look(keeper)
        assert not later.is_finished
        assert await keeper.used(live) == 4 * MIB
        await keeper.taker(live)(1)


@pytest.mark.parametrize(
    ("least", "code"), [(4 * MIB, ErrorCode.DISK_UNCOUNTABLE), (11 * MIB, ErrorCode.DISK)]
)
async def test_nothing_uncountable_is_tolerated(least: int, code: ErrorCode) -> None:
    """Whatever came before: nobody could say that it does not grow."""
    world = World()
    async with running(world) as (engine, keeper, live):
        world.disk_obstacle, world.disk_used = "a tree that is too deep", least
        for _ in range(3):
            await look(keeper)
            last = engine.list_executions(ME)[-1]
            assert last.outcome.error_code is code
            await engine.start_execution(ME, live.sandbox.id, RUN)
            world.seconds += 1


async def test_nothing_is_counted_where_the_kernel_holds() -> None:
    world = World()
    async with running(world) as (_, keeper, live):
        world.disk_held = True
        await look(keeper)
        await keeper.taker(live)(1 << 50)
        assert counts(world) == 0


async def test_a_disk_of_its_own_is_never_made_smaller_than_what_is_on_it() -> None:
    world = World()
    world.disk_own = True
    async with running(world) as (engine, _, live):
        world.disk_used = 6 * MIB
        asked = SandboxChanges(LimitChanges(disk_bytes=5 * MIB), force=True)
        with pytest.raises(LimitBelowUsage):
            await engine.change_sandbox(ME, live.sandbox.id, asked)
        assert live.sandbox.limits.disk_bytes == 10 * MIB
        assert world.disk_limits == {live.sandbox.uid: 10 * MIB}
        assert live.sandbox.enforcement["disk_bytes"].by is EnforcedBy.KERNEL


async def test_a_full_disk_of_its_own_is_the_sandbox_s_limit_and_no_matter_of_the_host_s() -> None:
    world = World()
    async with running(world) as (engine, _, live):
        for own, named in ((True, DiskQuotaExceeded), (False, HostDiskFull)):
            world.disk_own = own
            with pytest.raises(named):
                async with engine.files(ME, live.sandbox.id):
                    raise HostDiskFull("cannot write: no space left on device")


async def test_the_uid_is_free_of_its_limit_after_a_release() -> None:
    world = World()
    async with running(world) as (engine, _, live):
        await engine.release_sandbox(ME, live.sandbox.id)
        assert world.disk_limits == {}


@pytest.mark.parametrize(
    ("used", "exit_code", "code"),
    [(10 * MIB, 1, ErrorCode.DISK), (10 * MIB - 4096, 1, ErrorCode.DISK), (9 * MIB, 1, None),
     (10 * MIB, 0, None)],
)  # fmt: skip
async def test_a_full_quota_is_named_for_what_failed(
    used: int, exit_code: int, code: ErrorCode | None
) -> None:
    world = World()
    async with running(world) as (engine, _, live):
        world.disk_held = True
        world.disk_used = used
        [execution] = engine.list_executions(ME)
        world.shims[execution.id].finish(wait_status=exit_code << 8)
        await live.execution(execution.id).collected.wait()
        assert execution.outcome.status is ExecutionStatus.EXITED
        assert execution.outcome.error_code is code
