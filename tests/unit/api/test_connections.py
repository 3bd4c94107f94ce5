# SPDX-License-Identifier: Apache-2.0
"""Clients that send too much, too little or nothing, that leave, and a server that stops."""

from __future__ import annotations

import asyncio
import io
import json
import resource
import time
from contextlib import suppress

import pytest

from sandboxd.api import connection, decode, responses
from sandboxd.api.peer import Peer
from sandboxd.core.fair import FairSum
from tests.unit.api.harness import served

RUN = json.dumps({"argv": ["true"]}).encode()
HEAD = b"POST /v1/run HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


def post(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def error_of(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"x-request-id:" in head.lower()
    code: str = json.loads(body)["error"]["code"]
    return code


@pytest.mark.parametrize(
    "data",
    [b"\0\0\0\0\r\n\r\n",
     b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n",
     b"GET / HTTP/1.1\r\nA\r\n\r\n",
     b"POST /v1/run HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     b"POST /v1/run HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"],
)  # fmt: skip
async def test_what_is_not_http_gets_the_error_form_and_the_end(data: bytes) -> None:
    async with served() as server:
        answer = await server.send(data)
        assert answer.split(b" ")[1] == b"400"
        assert error_of(answer) == "INVALID_REQUEST"


async def test_a_broken_chunked_body_is_400() -> None:
    async with served() as server:
        data = HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n"
        assert error_of(await server.send(data)) == "INVALID_REQUEST"


async def test_a_body_over_the_bound_is_413_and_takes_no_memory() -> None:

    async with served() as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        data = HEAD + b"Content-Length: 104857600\r\nConnection: close\r\n\r\n"
        assert error_of(await server.send(data)) == "REQUEST_TOO_LARGE"
        reader, writer = await server.connect()
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        with suppress(ConnectionError):
            for _ in range(200):
                writer.write(chunk)
                await writer.drain()
        writer.close()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 32 << 10
        larger = io.BytesIO(b" " * (1 << 20) + b"{}")
        refused = await server.ask("PATCH", "/v1/sandboxes/abcdefghijkl", larger)
        assert (refused.status, refused.error["code"]) == (413, "REQUEST_TOO_LARGE")
        del reader


async def test_expect_100_continue_is_answered() -> None:
    async with served() as server:
        data = post(RUN).replace(
            b"Host: a", b"Host: a\r\nConnection: close\r\nExpect: 100-continue"
        )
        answer = await server.send(data)
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


async def test_silent_and_half_sent_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(connection, "KEEPALIVE_SECONDS", 0.3)
    monkeypatch.setattr(decode, "BODY_SECONDS", 0.2)
    async with served() as server:
        assert await server.send(b"") == b""
        assert await server.send(b"GET /healthz HTTP/1.1\r\nHost") == b""
        half = post(RUN)[:-2].replace(b"Host: a", b"Host: a\r\nConnection: close")
        assert error_of(await server.send(half)) == "INVALID_REQUEST"
        # An idle one, and one that stops in the middle of its second request.
        for more in (b"", b"GET /healthz HT"):
            answer = await server.send(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n" + more)
            assert answer.count(b"HTTP/1.1 200 OK") == 1
        # A handler at work is no silent connection.
        server.commands(seconds=0.6)
        assert (await server.ask("POST", "/v1/run", RUN)).status == 200


async def test_an_answer_that_nobody_takes_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "KEEPALIVE_SECONDS", 0.2)
    monkeypatch.setattr(responses, "TAKEN_SECONDS", 0.2)
    async with served() as server:
        server.commands(b"x" * (1 << 20))
        reader, writer = await asyncio.open_unix_connection(server.path, limit=1 << 10)
        writer.write(post(RUN))
        head = await reader.readline()
        assert head == b"HTTP/1.1 200 OK\r\n"
        # Not reading is what is tested, and it makes no event.
        await asyncio.sleep(0.6)
        rest = b""
        with suppress(ConnectionError):
            rest = await reader.read()
        assert len(rest) < 1 << 20
        writer.close()


async def test_a_client_that_leaves_ends_its_wait_and_not_the_execution() -> None:
    async with served() as server:
        server.commands(seconds=None)
        gate = server.world.gates["launch"] = asyncio.Event()
        _reader, writer = await server.connect()
        writer.write(post(RUN))
        await server.world.until(lambda: "launch waits" in server.world.calls)
        writer.transport.abort()
        gate.set()
        await server.started()
        [execution] = (await server.ask("GET", "/v1/executions")).json["executions"]
        assert execution["status"] == "RUNNING"


async def test_stopping_ends_waits_within_two_seconds() -> None:
    async with served() as server:
        server.commands(seconds=None)
        waiting = asyncio.ensure_future(server.ask("POST", "/v1/run", RUN))
        _reader, silent = await server.connect()
        silent.write(b"GET /heal")
        await server.started()
        before = time.monotonic()
    assert time.monotonic() - before < 2
    answered = await waiting
    assert (answered.status, answered.error["code"]) == (503, "DRAINING")
    silent.close()


async def test_stopping_gives_up_work_that_does_not_end() -> None:
    async with served() as server:
        server.world.gates["create_sandbox"] = asyncio.Event()
        waiting = asyncio.ensure_future(server.ask("POST", "/v1/sandboxes", {}))
        await server.world.until(lambda: "create_sandbox waits" in server.world.calls)
        before = time.monotonic()
    assert time.monotonic() - before < 2
    assert (await waiting).error["code"] == "DRAINING"


async def test_many_connections_at_once_are_all_taken() -> None:
    async with served() as server:
        pairs = [await server.connect() for _ in range(400)]
        for _reader, writer in pairs:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answers = await asyncio.gather(*(reader.read() for reader, _writer in pairs))
        assert all(answer.startswith(b"HTTP/1.1 200 OK") for answer in answers)
        for _reader, writer in pairs:
            writer.close()


async def test_one_caller_does_not_take_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OF_ALL", FairSum(total=20, little=1, most=5))
    ask = b"GET /readyz HTTP/1.1\r\nHost: a\r\n"
    last = ask + b"Connection: close\r\n\r\n"

    def be(uid: int) -> None:
        monkeypatch.setattr(connection, "read_peer", lambda _: Peer(1, uid, 1, frozenset()))

    async with served() as server:

        async def stay() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            """A connection that has been taken."""
            reader, writer = await server.connect()
            writer.write(ask + b"\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            return reader, writer

        be(54321)
        staying = [await stay() for _ in range(5)]
        refused = await server.send(b"")
        assert refused.startswith(b"HTTP/1.1 429 ")
        assert b"\r\nRetry-After: 1\r\n" in refused
        assert error_of(refused) == "CALLER_QUOTA_EXCEEDED"
        # The second leaves something for the third, and so on.
        be(54322)
        staying += [await stay() for _ in range(2)]
        assert error_of(await server.send(b"")) == "CALLER_QUOTA_EXCEEDED"
        for uid in (54323, 54324, 54325, 0):
            be(uid)
            staying.append(await stay())
        # One's own connections until then work on.
        for reader, writer in staying:
            writer.write(last)
            assert b"HTTP/1.1 200 OK" in await reader.read()
            writer.close()
        be(54321)
        assert (await server.send(last)).startswith(b"HTTP/1.1 200 OK")
