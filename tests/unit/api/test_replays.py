# SPDX-License-Identifier: Apache-2.0
"""Idempotency-Key: one request is done once, however often it is sent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sandboxd.api.connection import Connection
from tests.unit.api.harness import ADMIN, Answered, Served, served

RUN = {"argv": ["true"]}


async def keyed(server: Served, path: str, body: Any, key: str = "k") -> Answered:
    return await server.ask("POST", path, body, headers={"Idempotency-Key": key})


async def test_a_retry_gets_the_first_answer() -> None:
    async with served() as server:
        first = await keyed(server, "/v1/run", RUN)
        assert first.status == 200
        assert "idempotency-replayed" not in first.headers
        # The same JSON in another form is the same request.
        again = await keyed(server, "/v1/run", b' {"argv":\n["true"]} ')
        assert again.body == first.body
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["x-request-id"] == first.headers["x-request-id"]
        assert len(server.executions) == 1
        other = await keyed(server, "/v1/run", RUN, key="another")
        assert other.json["id"] != first.json["id"]


async def test_another_request_with_the_same_key_is_refused() -> None:
    async with served() as server:
        await keyed(server, "/v1/run", RUN)
        for path, body in (("/v1/run", {"argv": ["false"]}), ("/v1/sandboxes", {})):
            answered = await keyed(server, path, body)
            assert (answered.status, answered.error["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
        assert len(server.executions) == 1


async def test_a_retry_during_the_first_waits_for_the_same_execution() -> None:
    async with served() as server:
        server.commands(seconds=None)
        first = asyncio.ensure_future(keyed(server, "/v1/run", RUN))
        await server.started()
        again = asyncio.ensure_future(keyed(server, "/v1/run", RUN))
        reused = await keyed(server, "/v1/run", {"argv": ["false"]})
        assert reused.error["code"] == "IDEMPOTENCY_KEY_REUSED"
        server.end()
        one, two = await asyncio.gather(first, again)
        assert one.json["id"] == two.json["id"]
        assert one.json["status"] == "EXITED"
        assert len(server.executions) == 1


async def begin_and_leave(server: Served, key: bytes) -> None:
    """Of a run, once it has been started."""
    server.commands(seconds=None)
    count = len(server.executions) + 1
    body = json.dumps(RUN).encode()
    _reader, writer = await server.connect()
    writer.write(
        b"POST /v1/run HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Idempotency-Key: %b\r\nContent-Length: %d\r\n\r\n" % (key, len(body)) + body
    )
    await server.started(count)
    writer.transport.abort()


async def test_what_a_client_that_left_was_to_get_is_no_part_of_its_share_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is kept for one answer here is 36 bytes.
    monkeypatch.setattr("sandboxd.api.shares.SMALL_BYTES", 0)
    monkeypatch.setattr("sandboxd.api.shares.BYTES_OF_CALLER", 100)
    lose, is_lost = Connection.connection_lost, asyncio.Event()

    def connection_lost(connection: Connection, exc: BaseException | None) -> None:
        lose(connection, exc)
        is_lost.set()

    monkeypatch.setattr(Connection, "connection_lost", connection_lost)
    async with served() as server:
        path = ""
        for key in (b"a", b"b", b"c", b"d"):
            is_lost.clear()
            await begin_and_leave(server, key)
            await is_lost.wait()
            # For its handler to be cancelled.
            for _ in range(10):
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                again = asyncio.ensure_future(keyed(server, "/v1/run", RUN, key.decode()))
                server.end()
                answered = await again
            ran = answered.json
            assert ran["status"] == "EXITED"
            path = f"/v1/sandboxes/{ran['sandbox_id']}/executions/{ran['id']}"
        async with asyncio.timeout(10):
            assert (await server.ask("GET", path)).status == 200


async def test_an_answer_is_of_its_caller_s_share_until_the_last_retry_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Room for one answer while it is made, or for less beside it once it is.
    monkeypatch.setattr("sandboxd.api.shares.BYTES_OF_CALLER", 8_500_000)
    async with served() as server:
        server.commands(b"x" * 900_000, seconds=None)
        first = asyncio.create_task(keyed(server, "/v1/run", RUN))
        await server.started()
        body = json.dumps(RUN).encode()
        reader, writer = await server.connect()
        writer.write(
            b"POST /v1/run HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Idempotency-Key: k\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        # By then the retry waits, too.
        await keyed(server, "/v1/run", {"argv": ["false"]})
        server.end()
        ran = (await first).json
        await reader.readuntil(b"x" * 1000)
        path = f"/v1/sandboxes/{ran['sandbox_id']}/executions/{ran['id']}"
        other = asyncio.create_task(server.ask("GET", path))
        done, _ = await asyncio.wait([other], timeout=0.5)
        assert not done
        writer.transport.abort()
        async with asyncio.timeout(20):
            assert (await other).status == 200


async def test_retries_that_wait_keep_nothing_from_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandboxd.api.shares.BYTES_OF_CALLER", 1 << 20)
    async with served() as server:
        server.commands(b"x" * 60_000, seconds=None)
        body = {"argv": ["true"], "stdin": "y" * 200_000}
        sent = [asyncio.create_task(keyed(server, "/v1/run", body))]
        await server.started()
        sent += [asyncio.create_task(keyed(server, "/v1/run", body)) for _ in range(2)]
        await keyed(server, "/v1/run", RUN)
        server.end()
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*sent)
        assert len({answer.json["id"] for answer in answers}) == 1


async def test_a_client_that_left_finds_its_answer() -> None:
    async with served() as server:
        await begin_and_leave(server, b"k")
        again = asyncio.ensure_future(keyed(server, "/v1/run", RUN))
        server.end()
        assert (await again).json["status"] == "EXITED"
        assert (await keyed(server, "/v1/run", RUN)).body == (await again).body
        assert len(server.executions) == 1


async def test_what_may_go_better_later_is_tried_again() -> None:
    async with served() as server:
        filled = await server.fill()

        async def refused(code: str) -> None:
            answered = await keyed(server, "/v1/run", RUN)
            assert (answered.status, answered.error["code"]) == (503, code)
            # A key that says nothing takes no room.
            assert list(Path(server.path).with_name("keys").iterdir()) == []

        await refused("CAPACITY_EXCEEDED")
        await server.engine.release_sandbox(ADMIN, filled)
        server.world.full = True
        await refused("HOST_DISK_FULL")
        server.world.full = False
        await server.engine.set_draining(draining=True)
        await refused("DRAINING")
        await server.engine.set_draining(draining=False)
        server.world.breaks = "create_sandbox"
        assert (await keyed(server, "/v1/run", RUN)).status == 500
        server.world.breaks = None
        assert (await keyed(server, "/v1/run", RUN)).status == 200


async def test_a_refusal_for_good_is_kept() -> None:
    async with served() as server:
        path = "/v1/sandboxes/box/suspend"
        first = await keyed(server, path, None)
        assert (first.status, first.error["code"]) == (404, "SANDBOX_NOT_FOUND")
        await server.ask("POST", "/v1/sandboxes", {"name": "box"})
        assert (await keyed(server, path, None)).body == first.body
        # One that was never understood is none.
        assert (await keyed(server, "/v1/run", {"argv": 1}, key="bad")).status == 400
        assert (await keyed(server, "/v1/run", RUN, key="bad")).status == 200


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\N{LATIN SMALL LETTER E WITH ACUTE}"])
async def test_a_bad_key_is_refused(key: str) -> None:
    async with served() as server:
        answered = await keyed(server, "/v1/run", RUN, key)
        assert answered.error["details"]["fields"][0]["path"] == "Idempotency-Key"
        assert server.executions == []


async def test_a_key_says_nothing_where_nothing_is_made() -> None:
    async with served() as server:
        headers = {"Idempotency-Key": "k"}
        for _ in range(2):
            answered = await server.ask("GET", "/v1/sandboxes", headers=headers)
            assert "idempotency-replayed" not in answered.headers
