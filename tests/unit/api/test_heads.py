# SPDX-License-Identifier: Apache-2.0
"""Clients whose headers, trailers, chunk lines or request lines never end: `./dev test --oldest`
runs this with the oldest aiohttp, too."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import socket
from collections.abc import Iterable
from contextlib import suppress

import aiohttp
import pytest

from sandboxd.api import connection, head
from tests.unit.api.harness import Served, served

POST = b"POST /v1/run HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
WITHOUT_END = {
    "request line": (b"GET /", itertools.repeat(b"a" * 1000)),
    "one header": (b"GET / HTTP/1.1\r\nA: ", itertools.repeat(b"a" * 1000)),
    "header names": (b"GET / HTTP/1.1\r\n", itertools.repeat(b"a" * 1000)),
    "headers": (b"GET / HTTP/1.1\r\n", itertools.repeat(b"X-Header: xxx\r\n" * 64)),
    "shortest headers": (b"GET / HTTP/1.1\r\n", itertools.repeat(b"a:\r\n" * 250)),
    "large headers": (b"GET / HTTP/1.1\r\n", itertools.repeat(b"A: " + b"a" * 8000 + b"\r\n")),
    "empty lines": (b"", itertools.repeat(b"\r\n" * 500)),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", itertools.repeat(b"X-Header: xxx\r\n" * 64)),
    "one trailer": (CHUNKED + b"2\r\n{}\r\n0\r\nA: ", itertools.repeat(b"a" * 1000)),
    "a chunk's line": (CHUNKED + b"2;a=", itertools.repeat(b"a" * 1000)),
    "zeros of a size": (CHUNKED, itertools.repeat(b"0" * 1000)),
    "a second request": (b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n",
                         itertools.repeat(b"X-Header: xxx\r\n" * 64)),
}  # fmt: skip


async def pour(server: Served, begin: bytes, more: Iterable[bytes]) -> tuple[bytes, int]:
    """Send for as long as the server takes it; its answers, and how much that was.

    A bare socket, since asyncio's transport reads no more after a write that failed.
    """
    loop, sent, answered = asyncio.get_running_loop(), 0, b""
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        await loop.sock_connect(client, server.path)
        with suppress(ConnectionError):
            for piece in itertools.chain([begin], more):
                await loop.sock_sendall(client, piece)
                sent += len(piece)
                await asyncio.sleep(0)
        with suppress(ConnectionError):
            while data := await loop.sock_recv(client, 1 << 16):
                answered += data
    return answered, sent


@pytest.mark.parametrize("name", WITHOUT_END)
async def test_what_has_no_end_is_refused_before_it_takes_memory(name: str) -> None:
    async with served() as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answered, sent = await pour(server, *WITHOUT_END[name])
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 16 << 10
        # Beside what was under way in buffers when the connection was closed.
        assert sent < 4 << 20
        last = answered.rpartition(b"HTTP/1.")[2]
        assert last[2:].startswith(b"400 "), answered
        assert json.loads(last.partition(b"\r\n\r\n")[2])["error"]["code"] == "INVALID_REQUEST"


async def test_bytes_behind_an_upgrade_that_is_refused_are_bounded() -> None:
    async with served() as server:
        server.commands(seconds=None)
        execution = (await server.ask("POST", "/v1/run", {"argv": ["a"], "wait": False})).json
        wait = f"GET /v1/sandboxes/{execution['sandbox_id']}/executions/{execution['id']}?wait=9"
        begin = UPGRADE.replace(b"GET /readyz", wait.encode()) + b"\r\n"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        more = itertools.repeat(b"a" * 4096, 8 << 10)
        with suppress(TimeoutError):
            await asyncio.wait_for(pour(server, begin, more), 2)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 16 << 10


@pytest.mark.parametrize("count", [head.MAX_HEADERS - 1, head.MAX_HEADERS + 1])
async def test_headers_are_counted_alike_in_every_version(count: int) -> None:
    request = (
        b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        + b"A: a\r\n" * (count - 2)
        + b"\r\n"
    )
    async with served() as server:
        for data in (request, b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n" + request):
            last = (await server.send(data)).rpartition(b"HTTP/1.")[2]
            assert last[2:].startswith(b"200 " if count < head.MAX_HEADERS else b"400 ")


async def test_what_is_large_and_has_an_end_is_taken() -> None:
    async with served() as server:
        lines = b"".join(b"A%d: %b\r\n" % (n, b"a" * 7000) for n in range(4))
        data = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + lines + b"\r\n"
        assert (await server.send(data)).startswith(b"HTTP/1.1 200 ")
        # Many small requests, and many small chunks, each with something around it.
        many = b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n" * 30
        last = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        assert (await server.send(many + last)).count(b"HTTP/1.1 200 ") == 31
        chunks = b'2;x="y"\r\n  \r\n' * 20_000 + b"2\r\n{}\r\n0\r\nA: a\r\n\r\n"
        head_of = CHUNKED.replace(b"Host: a", b"Host: a\r\nConnection: close")
        assert b'"fields"' in await server.send(head_of + chunks)


async def test_chunks_that_nobody_reads_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: asyncio.Queue[connection.Connection] = asyncio.Queue()
    real = connection.Connection.pause_reading

    def spy(self: connection.Connection) -> None:
        real(self)
        paused.put_nowait(self)

    monkeypatch.setattr(connection.Connection, "pause_reading", spy)
    async with served() as server:
        server.commands(seconds=None)
        start = {"argv": ["a"], "wait": False, "stdin_open": True}
        execution = (await server.ask("POST", "/v1/run", start)).json
        path = f"/v1/sandboxes/{execution['sandbox_id']}/executions/{execution['id']}/stdin"
        stdin = server.world.shims[execution["id"]].stdin
        assert stdin is not None
        stdin.room.clear()
        _reader, writer = await server.connect()
        begin = f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        writer.write(begin + b"1\r\nx\r\n" * 500_000)
        async with asyncio.timeout(10):
            held_up = await paused.get()
        waiting = held_up._body._http_chunk_splits
        assert waiting is not None
        assert len(waiting) < 20_000
        writer.transport.abort()
        stdin.room.set()


def test_a_run_that_asks_for_the_oldest_library_has_it() -> None:
    assert aiohttp.__version__ == "3.11.16" or "SANDBOXD_TEST_OLDEST" not in os.environ
