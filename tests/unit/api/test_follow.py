# SPDX-License-Identifier: Apache-2.0
"""Following an output: to its end, at the reader's pace, and no longer than the reader is there."""

from __future__ import annotations

import asyncio
import itertools
import resource
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from sandboxd.api import connection, following, streams
from sandboxd.api.peer import Peer
from sandboxd.core.fair import FairSum
from sandboxd.core.times import OutputTimes
from sandboxd.errors import QuotaExceeded
from tests.unit.api.harness import OUTPUT, Served, served
from tests.unit.fakes.shims import FakeShim
from tests.unit.fakes.stores import FakeWorkspaces


async def begin(server: Served, stdout: bytes = OUTPUT, **more: Any) -> tuple[FakeShim, str]:
    """A running execution that has printed, and its path."""
    server.commands(stdout, seconds=None)
    made = (await server.ask("POST", "/v1/sandboxes", {})).json
    target = f"/v1/sandboxes/{made['id']}/executions"
    ran = (await server.ask("POST", target, {"argv": ["true"], "wait": False, **more})).json
    return server.world.shims[ran["id"]], f"{target}/{ran['id']}"


async def nobody_follows(server: Served, shim: FakeShim) -> None:
    """Return once all have been forgotten."""
    await server.world.until(lambda: not server.world.records[shim.name].rings)


def get(server: Served, target: str) -> Any:
    return server.session.get(f"http://localhost{target}")


async def test_it_sends_what_was_there_what_comes_and_ends_with_the_execution() -> None:
    async with served() as server:
        shim, path = await begin(server)
        async with get(server, f"{path}/output?follow=true&offset=1") as answer:
            assert answer.status == 200
            assert await answer.content.readexactly(3) == b"ut\n"
            shim.print("stderr", b"not this")
            shim.print("stdout", b"more")
            assert await answer.content.readexactly(4) == b"more"
            shim.print("stdout", b"last")
            shim.finish()
            assert await answer.content.read() == b"last"
        await nobody_follows(server, shim)


async def test_a_change_that_was_not_told_is_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "QUIET_SECONDS", 0.05)
    async with served() as server:
        shim, path = await begin(server)
        async with get(server, f"{path}/output?follow=1") as answer:
            assert await answer.content.readexactly(4) == b"out\n"
            server.world.records[shim.name].spools["stdout"] += b"silent"
            assert await answer.content.readexactly(6) == b"silent"


async def test_a_stream_may_be_quiet_for_longer_than_an_idle_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Long enough for a slow host to send the next request in.
    monkeypatch.setattr(connection, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(connection, "KEEPALIVE_SECONDS", 0.5)
    async with served() as server:
        shim, path = await begin(server)
        async with get(server, f"{path}/output?follow=true") as answer:
            assert await answer.content.readexactly(4) == b"out\n"
            # Silence is what is tested, and it makes no event.
            await asyncio.sleep(1.5)
            shim.print("stdout", b"after")
            assert await answer.content.readexactly(5) == b"after"


async def test_requests_behind_a_stream_wait_in_bounded_room() -> None:
    async with served() as server:
        _, path = await begin(server)
        reader, writer = await server.connect()
        writer.write(f"GET {path}/output?follow=true HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert await reader.readuntil(b"out\n")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(2):
                for _ in range(200_000):
                    writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                    await writer.drain()
        writer.transport.abort()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


async def test_a_reader_that_leaves_is_forgotten() -> None:
    async with served() as server:
        shim, path = await begin(server)
        async with get(server, f"{path}/output?follow=true") as answer:
            assert await answer.content.readexactly(4) == b"out\n"
            assert len(server.world.records[shim.name].rings) == 1
            answer.close()
        await nobody_follows(server, shim)


async def test_a_stopping_server_breaks_it_off() -> None:
    async with served() as server:
        _, path = await begin(server)
        answer = await get(server, f"{path}/output?follow=true")
        assert await answer.content.readexactly(4) == b"out\n"
    # An end that looks like one would be taken for the end of the output.
    with pytest.raises(aiohttp.ClientPayloadError):
        await answer.content.read()
    answer.close()


async def test_output_that_was_removed_is_no_short_output() -> None:
    async with served() as server:
        shim, path = await begin(server)
        async with get(server, f"{path}/output?follow=true") as answer:
            assert await answer.content.readexactly(4) == b"out\n"
            spool = server.world.records[shim.name].spools["stdout"]
            spool += b"and more"
            shim.finish()
            spool.clear()
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.content.read()


async def test_the_number_of_streams_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_OF_EXECUTION", 2)
    monkeypatch.setattr(streams, "OF_ALL", FairSum(total=3, little=3, most=3))
    monkeypatch.setattr(connection, "read_peer", lambda _: Peer(1, 54321, 1, frozenset()))
    async with served() as server:
        (_, first), (_, second) = await begin(server), await begin(server)
        target = f"{first}/output?follow=true"
        async with get(server, target), get(server, target):
            refused = await server.ask("GET", target)
            assert (refused.status, refused.error["code"]) == (429, "CALLER_QUOTA_EXCEEDED")
            assert refused.error["details"] == {
                "quota": "streams", "maximum": 2, "used": 2, "asked": 1, "maximum_streams": 2,
            }  # fmt: skip
            async with get(server, f"{second}/output?follow=true") as other:
                assert other.status == 200
                refused = await server.ask("GET", f"{second}/output?follow=true")
                assert refused.error["details"] == {
                    "quota": "streams", "maximum": 3, "used": 3, "asked": 1, "maximum_streams": 3,
                }  # fmt: skip
                # What is no stream is not counted.
                assert (await server.ask("GET", f"{first}/output")).body == b"out\n"


def take_all(counted: streams.Streams, held: ExitStack, uid: int) -> int:
    """As many as a caller gets, of executions that nobody else follows."""
    for count in itertools.count():
        try:
            held.enter_context(counted.one(uid, f"{uid}-{count // 100}"))
        except QuotaExceeded:
            return count
    raise AssertionError


def test_greedy_callers_leave_streams_to_others_and_to_root() -> None:
    counted = streams.Streams()
    with ExitStack() as held:
        assert [take_all(counted, held, uid) for uid in (1000, 1001)] == [512, 256]
        assert min(take_all(counted, held, uid) for uid in range(1002, 1020)) == 8
        assert take_all(counted, held, 2000) == 8
        with counted.one(0, "a"):
            pass


def test_who_follows_an_execution_keeps_no_other_from_it() -> None:
    counted = streams.Streams()
    with ExitStack() as held:
        for _ in range(streams.MAX_OF_EXECUTION):
            held.enter_context(counted.one(1000, "a"))
        with pytest.raises(QuotaExceeded, match="streams of a"), counted.one(1000, "a"):
            pass
        with counted.one(0, "a"), counted.one(1000, "b"):
            pass


async def test_events_with_times_leave_turns_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    count, others = 2000, 0
    times = OutputTimes(datetime.now(UTC), 0.01, range(count), [i / 100 for i in range(count)])

    async def output_times(*_: object) -> OutputTimes:
        return times

    async def work_beside() -> None:
        nonlocal others
        while True:
            await asyncio.sleep(0)
            others += 1

    monkeypatch.setattr(FakeWorkspaces, "output_times", output_times)
    async with served() as server:
        _, path = await begin(server, b"x" * count)
        async with get(server, f"{path}/events?timestamps=true&follow=false") as answer:
            assert answer.status == 200
            beside = asyncio.create_task(work_beside())
            assert (await answer.content.read()).count(b"event: stdout") == count
            beside.cancel()
    assert others >= count // 2
