# SPDX-License-Identifier: Apache-2.0
"""/v1/events: what it says, how it resumes, and the end of a reader that is too slow."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from sandboxd.api import events as handler
from sandboxd.api import sending
from sandboxd.core.model import EventType, SandboxState
from sandboxd.engine.events import Event
from tests.unit.api.harness import Served, served
from tests.unit.values import NOW


class Told(NamedTuple):
    id: str
    name: str
    data: dict[str, object]


class Stream:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.ended = False

    async def next(self) -> Told | None:
        """The next event; None at the end."""
        found: dict[str, str] = {}
        async with asyncio.timeout(10):
            while True:
                line = (await self._reader.readline()).decode()
                if not line:
                    return None
                line = line.rstrip("\r\n")
                name, _, value = line.partition(": ")
                if name in ("id", "event", "data") and value:
                    found[name] = value
                elif not line and "data" in found:
                    data = json.loads(found["data"])
                    return Told(found.get("id", ""), found["event"], data)


@asynccontextmanager
async def following(server: Served, last_id: str | None = None) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_unix_connection(server.path, limit=1 << 16)
    header = "" if last_id is None else f"Last-Event-ID: {last_id}\r\n"
    writer.write(f"GET /v1/events HTTP/1.1\r\nHost: a\r\n{header}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"text/event-stream" in head
    # The first comment: from here on nothing is missed.
    await reader.readuntil(b": sandboxd\n\n")
    try:
        yield Stream(reader)
    finally:
        writer.close()


def publish(server: Served, uid: int | None = None, count: int = 1, name: str = "box") -> None:
    owner = os.getuid() if uid is None else uid
    for _ in range(count):
        server.engine.events.publish(
            Event(EventType.SANDBOX_CREATED, NOW, owner, "abcdefghijkl", name, SandboxState.READY)
        )


async def test_events_come_and_resume_by_id() -> None:
    async with served() as server:
        publish(server)
        async with following(server) as stream:
            publish(server, name="one")
            first = await stream.next()
            publish(server, count=2, name="two")
            assert first is not None
            assert first.name == "sandbox.created"
            assert first.data["sandbox_name"] == "one"
            assert first.data["at"] == "2026-01-02T03:04:05Z"
            assert await stream.next()
        async with following(server, first.id) as stream:
            for _ in range(2):
                told = await stream.next()
                assert told is not None
                assert told.data["sandbox_name"] == "two"


async def test_what_is_lost_is_said() -> None:
    async with served() as server:
        channel = server.engine.events._everything
        publish(server, count=5000)
        for last_id in (f"{channel.epoch}-1", "aaaaaaaaaaaa-4999"):
            async with following(server, last_id) as stream:
                gap, first = await stream.next(), await stream.next()
                assert gap is not None
                assert gap.name == "gap"
                assert first is not None
                assert first.id == f"{channel.epoch}-{channel.first}"


@pytest.mark.parametrize("last_id", ["", "x", "abcdefghijkl", "abcdefghijkl-", "abcdefghijkl--1"])
async def test_a_bad_id_is_refused(last_id: str) -> None:
    async with served() as server:
        answered = await server.ask("GET", "/v1/events", headers={"Last-Event-ID": last_id})
        assert (answered.status, answered.error["code"]) == (400, "INVALID_REQUEST")


async def test_a_quiet_stream_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "QUIET_SECONDS", 0.05)
    async with served() as server, following(server) as stream:
        assert b": still here\n" in await stream._reader.readuntil(b"still here\n")


async def test_a_reader_that_takes_nothing_is_cut_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than a busy host keeps the quick one from its processor.
    monkeypatch.setattr(sending, "STALLED_SECONDS", 2.0)
    async with served() as server, following(server) as slow:
        async with following(server) as quick:
            publish(server, count=4000, name="x" * 200)
            for _ in range(4000):
                assert await quick.next()
            # The slow one's time is up well before this.
            await asyncio.sleep(3.0)
            publish(server)
            assert await quick.next()
        told = None
        while (event := await slow.next()) is not None:
            told = event
        assert told is not None
        assert told.name == "cut"
        assert "too long" in str(told.data["message"])


async def test_a_reader_that_lost_its_place_is_cut_and_told() -> None:
    async with served() as server, following(server) as slow:
        # More than sockets and buffers hold, before it reads anything.
        publish(server, count=3000, name="x" * 400)
        await asyncio.sleep(0.05)
        publish(server, count=5000, name="x" * 400)
        told = None
        while (event := await slow.next()) is not None:
            told = event
        assert told is not None
        assert told.name == "cut"
        assert "too slow" in str(told.data["message"])


async def test_the_server_s_stop_is_said() -> None:
    async with served() as server:
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b": sandboxd\n\n")
    rest = await reader.read()
    assert b"event: cut" in rest
    assert b"stopping" in rest
    writer.close()
