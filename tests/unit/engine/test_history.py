# SPDX-License-Identifier: Apache-2.0
"""The history counts each second once, tells nobody of others, and is bounded."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from sandboxd.core.model import (
    Caller,
    Command,
    Execution,
    ExecutionStatus,
    Outcome,
    SandboxUsage,
    Usage,
)
from sandboxd.core.totals import OTHERS, Period, SavedHistory
from sandboxd.engine import history as module
from sandboxd.engine.engine import Engine
from sandboxd.engine.history import History, HistorySnapshot
from sandboxd.engine.requests import ExecutionRequest, SandboxRequest
from sandboxd.engine.usage_sampler import UsageSampler
from tests.unit.fakes.engine import make_context, make_engine
from tests.unit.fakes.world import World
from tests.unit.values import an_execution

ME = Caller(1000, 1000, 1, is_admin=False)
ADMIN = Caller(0, 0, 1, is_admin=True)
HALF_A_DAY = timedelta(hours=12)


def running(world: World, number: int = 0) -> Execution:
    return replace(an_execution(), id=f"{number:012}", created_at=world.now())


def all_of(history: History | HistorySnapshot, caller: Caller, points: int = 240) -> Period:
    told = history.snapshot() if isinstance(history, History) else history
    now = told.now
    return told.period(caller, now - HALF_A_DAY, now + timedelta(seconds=1), points)


def ended(execution: Execution, cpu: float | None) -> Execution:
    execution.outcome = Outcome(ExecutionStatus.EXITED, exit_code=0)
    execution.usage = Usage(cpu_seconds=cpu)
    return execution


def test_what_is_used_is_counted_once() -> None:
    world = World()
    history = History(world)
    world.seconds += 1
    one = running(world)
    for cpu, memory in ((1.0, 10), (2.5, 30), (2.5, 20)):
        history.sample([(1000, one, SandboxUsage(cpu_seconds=cpu, memory_bytes=memory))])
    history.ended(1000, ended(one, 4.0))
    # A look that began before the end and is told of after it.
    history.sample([(1000, one, SandboxUsage(cpu_seconds=3.9, memory_bytes=99))])
    [sums] = all_of(history, ME).by_owner.values()
    assert (sums.cpu_seconds, sums.memory_bytes, sums.executions) == (4.0, 30, 1)
    assert sums.ended == {"EXITED": 1}


def test_short_ones_between_two_looks_are_seen() -> None:
    world = World()
    history = History(world)
    world.seconds += 1
    pair = [running(world, number) for number in range(2)]
    for one in pair:
        history.started(1000, one)
    for one in pair:
        history.ended(1000, replace(ended(one, 0.1), usage=Usage(memory_peak_bytes=5)))
    sums = all_of(history, ME).by_owner[1000]
    assert (sums.executions, sums.memory_bytes) == (2, 5)
    world.seconds += 60
    history.started(1000, running(world, 3))
    assert all_of(history, ME, 1440).points[-1][1].executions == 1


def test_what_an_earlier_daemon_saw_is_none_of_this_ones() -> None:
    world = World()
    old = running(world)
    world.seconds += 10
    history = History(world)
    history.sample([(1000, old, SandboxUsage(cpu_seconds=100.0))])
    history.ended(1000, ended(old, 101.0))
    unseen = replace(old, id="b" * 12)
    history.ended(1000, ended(unseen, 50.0))
    assert all_of(history, ME).by_owner[1000].cpu_seconds == 1.0


def test_unknown_is_not_nothing() -> None:
    history = History(World())
    history.sample([(1000, running(World()), SandboxUsage())])
    sums = all_of(history, ME).by_owner[1000]
    assert (sums.cpu_seconds, sums.memory_bytes, sums.executions) == (None, None, 1)


def test_minutes_are_told_apart_and_put_together() -> None:
    world = World()
    history = History(world)
    for minute in range(4):
        one = running(world, minute)
        history.sample([(1000, one, SandboxUsage(memory_bytes=10 * (minute + 1)))])
        history.sample([(1001, running(world, 9), SandboxUsage(memory_bytes=1))])
        history.ended(1000, ended(one, 1.0))
        world.seconds += 60
    period = all_of(history, ADMIN, 1440)
    assert period.interval_seconds == 60
    assert [sums.memory_bytes for _, sums in period.points] == [11, 21, 31, 41]
    assert [at.second for at, _ in period.points] == [period.since.second] * 4
    [(_, sums)] = all_of(history, ADMIN, 1).points
    assert (sums.memory_bytes, sums.cpu_seconds, sums.executions) == (41, 4.0, 2)
    told = history.snapshot()
    later = told.period(ADMIN, told.now - timedelta(seconds=90), told.now, 10)
    assert sum(sums.ended["EXITED"] for _, sums in later.points) == 2
    assert all_of(history, ME).by_owner.keys() == {1000}


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxd.core.totals.MAX_OWNERS", 3)
    monkeypatch.setattr(module, "_SPARE_COUNTS", 5)
    world = World()
    history = History(world, kept=4)
    for minute in range(10):
        for uid in range(10):
            history.refused(uid, "INVALID_REQUEST")
            history.sample([(uid, running(world, 10 * minute + uid), SandboxUsage())])
        world.seconds += 60
    period = all_of(history, ADMIN, 1440)
    assert len(period.points) == 4
    assert period.by_owner.keys() == {0, 1, 2, OTHERS}
    assert period.by_owner[OTHERS].refused == {"INVALID_REQUEST": 28}
    assert len(history._counted) <= 10


async def test_the_engine_looks_when_asked_and_tells_of_ends() -> None:
    world = World()
    engine: Engine
    engine, context = make_engine(world)
    async with context.tasks:
        world.seconds += 1
        world.usage = SandboxUsage(memory_bytes=7, cpu_seconds=1.0)
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        request = ExecutionRequest(Command(("true",)))
        execution = await engine.start_execution(ME, sandbox.id, request)
        world.seconds += 2
        history = await engine.history()
        assert all_of(history, ME).by_owner[1000].memory_bytes == 7
        engine.note_refusal(1000, "DRAINING")
        world.shims[execution.id].finish()
        await engine.wait_execution(ME, sandbox.id, execution.id, None)
        sums = all_of(await engine.history(), ME).by_owner[1000]
        assert (sum(sums.ended.values()), sums.refused) == (1, {"DRAINING": 1})
        context.tasks.cancel_all()


def restarted(world: World, history: History) -> History:
    """By a daemon that was killed: what was not saved is lost."""
    past = history.unsaved()
    assert past is not None
    history.saved(past)
    assert history.unsaved() is None
    following = History(world)
    following.restore(past)
    return following


def test_the_next_daemon_goes_on_where_the_last_minute_ended() -> None:
    world = World()
    history = History(world)
    world.seconds += 1
    one, two = running(world, 1), running(world, 2)
    for execution in (one, two):
        history.started(1000, execution)
    history.sample([(1000, one, SandboxUsage(cpu_seconds=10.0))])
    history.ended(1000, ended(running(world, 3), 5.0))
    world.seconds += 60
    # Of the next minute, which is lost; what it counted is counted again by the next daemon.
    history.sample([(1000, one, SandboxUsage(cpu_seconds=11.0))])
    world.seconds += 30
    new = running(world, 4)
    following = restarted(world, history)
    following.sample([(1000, one, SandboxUsage(cpu_seconds=14.0))])
    # Never looked at before, and older than this daemon.
    following.ended(1000, ended(two, 3.0))
    following.ended(1000, ended(new, 2.0))
    sums = all_of(following, ME).by_owner[1000]
    assert sums.cpu_seconds == 5.0 + 14.0 + 3.0 + 2.0
    assert sums.ended == {"EXITED": 3}
    assert following.known_since == history.known_since


def test_a_daemon_that_is_stopped_loses_nothing() -> None:
    world = World()
    history = History(world)
    world.seconds += 1
    history.ended(1000, ended(running(world), 5.0))
    history.refused(1000, "LIMIT_TOO_LARGE")
    history.close()
    sums = all_of(restarted(world, history), ME).by_owner[1000]
    assert (sums.cpu_seconds, sums.refused) == (5.0, {"LIMIT_TOO_LARGE": 1})


def test_what_gives_way_is_not_said_to_be_known() -> None:
    world = World()
    history = History(world, kept=3)
    first = history.known_since
    for number in range(5):
        history.refused(1000, "INTERNAL")
        assert history.known_since == first or number > 2
        world.seconds += 61
    history.close()
    assert history.known_since == first + timedelta(seconds=2 * 61)
    past = history.unsaved()
    assert past is not None
    assert len(past.intervals) == 3


async def test_a_full_disk_is_told_once_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    context = make_context(world)
    sampler, history = UsageSampler(context), context.lifecycle.history
    world.full = True
    for _ in range(3):
        history.refused(1000, "INTERNAL")
        world.seconds += 61
        await sampler.pass_once()
    assert caplog.text.count("Cannot keep the history") == 1
    world.full = False
    history.refused(1000, "INTERNAL")
    await sampler.close()
    past = await context.history_store.load()
    assert past is not None
    assert sum(one.by_owner[1000].refused["INTERNAL"] for one in past.intervals) == 4


def test_a_daemon_that_never_looked_hands_on_what_was_counted() -> None:
    world = World()
    history = History(world)
    world.seconds += 1
    one = running(world, 1)
    history.started(1000, one)
    history.sample([(1000, one, SandboxUsage(cpu_seconds=10.0))])
    world.seconds += 60
    first = history.unsaved()
    assert first is not None
    second = restarted(world, history_of(world, first))
    second.sample([(1000, one, SandboxUsage(cpu_seconds=11.0))])
    assert all_of(second, ME).by_owner[1000].cpu_seconds == 1.0


def history_of(world: World, past: SavedHistory) -> History:
    """Of a daemon that went on from `past` and could not look before its end."""
    history = History(world)
    history.restore(past)
    history.refused(1000, "INTERNAL")
    history.close()
    return history


def test_a_clock_that_steps_back_takes_nothing_away() -> None:
    world = World()
    history = History(world)
    world.seconds += 1
    one = replace(running(world, 1), created_at=history.known_since - timedelta(hours=1))
    two = replace(one, id="b" * 12)
    for execution in (one, two):
        history.started(1000, execution)
    history.ended(1000, ended(one, 5.0))
    following = restarted_after(world, history)
    following.sample([(1000, two, SandboxUsage(cpu_seconds=3.0))])
    assert all_of(following, ME).by_owner[1000].cpu_seconds == 5.0 + 3.0


def restarted_after(world: World, history: History) -> History:
    world.seconds += 60
    return restarted(world, history)


def test_what_was_told_stays_as_it_was() -> None:
    """It is summed up in a thread, beside what goes on."""
    world = World()
    history = History(world)
    history.refused(1000, "INTERNAL")
    told = history.snapshot()
    history.refused(1000, "INTERNAL")
    history.refused(1001, "INTERNAL")
    found = told.period(ADMIN, told.now - HALF_A_DAY, told.now + timedelta(seconds=1), 1)
    assert {uid: sums.refused["INTERNAL"] for uid, sums in found.by_owner.items()} == {1000: 1}
