# SPDX-License-Identifier: Apache-2.0
"""Events: every step is told once, to whom may see it, and what is kept is bounded."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from sandboxd.core.logs import ASKED, FIELDS, Asked
from sandboxd.core.model import Caller, Command, EventType, SandboxState
from sandboxd.engine.allowance import MOST_LINES, WINDOW_SECONDS
from sandboxd.engine.events import Event, Events
from sandboxd.engine.lifecycle import Lifecycle
from sandboxd.engine.requests import ExecutionRequest, Origin, SandboxChanges, SandboxRequest
from tests.unit.fakes.engine import make_engine
from tests.unit.fakes.world import World
from tests.unit.values import NOW, a_sandbox

ME = Caller(1000, 1000, 1, is_admin=False)
OTHER = Caller(1001, 1001, 1, is_admin=False)
ADMIN = Caller(0, 0, 1, is_admin=True)


def an_event(uid: int) -> Event:
    return Event(EventType.SANDBOX_CREATED, NOW, uid, "abcdefghijkl", None, SandboxState.READY)


def types(events: Events, caller: Caller) -> list[str]:
    return [event.type.value for _, event in events.channel(caller).after(0, 100)]


async def test_a_life_is_told_step_by_step() -> None:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest(name="box"))
        execution = await engine.start_execution(
            ME, sandbox.id, ExecutionRequest(Command(("true",)))
        )
        await engine.suspend_sandbox(ME, sandbox.id)
        await engine.suspend_sandbox(ME, sandbox.id)
        await engine.resume_sandbox(ME, sandbox.id)
        world.shims[execution.id].finish(wait_status=256)
        await engine.wait_execution(ME, sandbox.id, execution.id, None)
        await engine.change_sandbox(ME, sandbox.id, SandboxChanges(metadata={"a": "b"}))
        for _ in range(2):
            await engine.release_sandbox(ME, sandbox.id)
    expected = [
        "sandbox.created", "execution.started", "sandbox.suspended", "sandbox.resumed",
        "execution.ended", "sandbox.changed", "sandbox.releasing", "sandbox.released",
    ]  # fmt: skip
    assert types(engine.events, ME) == types(engine.events, ADMIN) == expected
    assert types(engine.events, OTHER) == []
    told = [event for _, event in engine.events.channel(ME).after(0, 100)]
    assert {event.sandbox_id for event in told} == {sandbox.id}
    assert {event.sandbox_name for event in told} == {"box"}
    assert (told[4].execution_id, told[4].status, told[4].exit_code) == (execution.id, "EXITED", 1)
    assert (told[6].reason, told[7].state) == ("SANDBOX_RELEASED", "released")


def test_a_channel_keeps_the_last_ones_and_their_numbers() -> None:
    events = Events(size=3)
    for _ in range(5):
        events.publish(an_event(1000))
    channel = events.channel(ME)
    assert (channel.first, channel.last) == (3, 5)
    assert [number for number, _ in channel.after(0, 10)] == [3, 4, 5]
    assert [number for number, _ in channel.after(3, 1)] == [4]
    assert channel.after(5, 10) == []


def test_one_caller_s_events_push_out_nobody_else_s() -> None:
    events = Events(size=2)
    events.publish(an_event(1001))
    for _ in range(5):
        events.publish(an_event(1000))
    assert [number for number, _ in events.channel(OTHER).after(0, 10)] == [1]


def test_channels_are_bounded_but_for_those_that_are_read() -> None:
    events = Events(owners=3)
    read = events.channel(ME)
    read.readers += 1
    for uid in range(2000, 2100):
        events.publish(an_event(uid))
    assert events.channel(ME) is read
    assert len(events._channels) <= 4


async def test_readers_wake_on_news() -> None:
    events = Events()
    channel = events.channel(ME)
    waiting = [asyncio.ensure_future(channel.wait_beyond(0)) for _ in range(3)]
    await asyncio.sleep(0)
    events.publish(an_event(1001))
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    events.publish(an_event(1000))
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)


@pytest.mark.parametrize("logs_arguments", [False, True])
async def test_each_step_leaves_an_audit_line(
    caplog: pytest.LogCaptureFixture, logs_arguments: bool
) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    engine, context = make_engine(world)
    context.lifecycle._logs_arguments = logs_arguments
    ASKED.set(Asked("rrrrrrrrrrrr", 1000, 4242))
    request = ExecutionRequest(Command(("prog", "a secret")), origin=Origin("rrrrrrrrrrrr"))
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, sandbox.id, request)
        world.shims[execution.id].finish(reason="oom", wait_status=9)
        await engine.wait_execution(ME, sandbox.id, execution.id, None)
        await engine.release_sandbox(ME, sandbox.id)
    lines = [
        (record.getMessage(), getattr(record, FIELDS))
        for record in caplog.records
        if record.name == "sandboxd.engine.lifecycle"
    ]
    assert [fields["EVENT"] for _, fields in lines] == [
        "sandbox.created", "execution.ended", "sandbox.releasing", "sandbox.released",
    ]  # fmt: skip
    for text, fields in lines:
        assert fields["SANDBOX_ID"] == sandbox.id
        assert ("a secret" in text) == (logs_arguments and fields["EVENT"] == "execution.ended")
        assert "a secret" not in str(fields)
    assert "asked by uid 1000, pid 4242, request rrrrrrrrrrrr" in lines[0][0]
    assert "asked by uid 1000, pid 4242, request rrrrrrrrrrrr" in lines[1][0]
    assert lines[1][1]["EXECUTION_ID"] == execution.id
    assert lines[1][1]["VERDICT"] == execution.outcome.status


async def test_who_drained_a_host_is_told(caplog: pytest.LogCaptureFixture) -> None:
    engine, _context = make_engine(World())
    ASKED.set(Asked("rrrrrrrrrrrr", 1000, 4242))
    await engine.set_draining(draining=True)
    await engine.set_draining(draining=False)
    asked = "asked by uid 1000, pid 4242, request rrrrrrrrrrrr"
    assert [record.getMessage() for record in caplog.records] == [
        f"Draining: taking no new work, {asked}", f"Taking work again, {asked}",
    ]  # fmt: skip


async def test_arguments_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = World()
    engine, context = make_engine(world)
    context.lifecycle._logs_arguments = True
    forged = "x\nINFO sandboxd: Released sandbox y\r\x1b[2J\u2028\udc80"
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        request = ExecutionRequest(Command(("prog", forged)))
        execution = await engine.start_execution(ME, sandbox.id, request)
        world.shims[execution.id].finish()
        await engine.wait_execution(ME, sandbox.id, execution.id, None)
        await engine.release_sandbox(ME, sandbox.id)
    told = [record.getMessage() for record in caplog.records if "prog" in record.getMessage()]
    assert [text.split()[0] for text in told] == ["Started", "Execution"]
    assert all(text.isprintable() and "x\\nINFO" in text for text in told)


def test_who_makes_thousands_of_steps_pushes_out_nobody_elses_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    lifecycle = Lifecycle(world)
    loud, quiet = (replace(a_sandbox(), owner_uid=uid) for uid in (1000, 1001))
    for _ in range(MOST_LINES + 500):
        lifecycle.sandbox(EventType.SANDBOX_CHANGED, loud)
    assert len(caplog.records) == MOST_LINES + 1
    assert "uid 1000 are told no more" in caplog.records[-1].getMessage()
    caplog.clear()
    lifecycle.sandbox(EventType.SANDBOX_CHANGED, quiet)
    lifecycle.sandbox(EventType.SANDBOX_CHANGED, loud)
    assert ["uid 1001" in record.getMessage() for record in caplog.records] == [True]
    world.seconds += WINDOW_SECONDS
    lifecycle.sandbox(EventType.SANDBOX_CHANGED, loud)
    assert "uid 1000" in caplog.records[-1].getMessage()
