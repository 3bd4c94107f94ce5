# SPDX-License-Identifier: Apache-2.0
"""Records that are large by what their caller put into them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from sandboxd.engine.ports.files import SandboxFiles
from tests.unit.api.harness import Served, served
from tests.unit.fake_files import FakeFiles

LARGE = ["x" * 100_000] * 16


async def of_sandbox(server: Served) -> str:
    env = {f"A{number}": text for number, text in enumerate(LARGE)}
    made = (await server.ask("POST", "/v1/sandboxes", {"env": env})).json
    return f"/v1/sandboxes/{made['id']}"


async def of_execution(server: Served) -> str:
    made = (await server.ask("POST", "/v1/sandboxes", {})).json
    target = f"/v1/sandboxes/{made['id']}/executions"
    ran = (await server.ask("POST", target, {"argv": ["true", *LARGE], "wait": False})).json
    return f"{target}/{ran['id']}"


async def of_end(server: Served) -> str:
    path = await of_execution(server)
    await server.ask("GET", f"{path}?wait=10")
    return f"{path}/events"


@pytest.mark.parametrize("large", [of_sandbox, of_execution, of_end])
async def test_answers_that_nobody_reads_are_of_their_caller_s_share(
    monkeypatch: pytest.MonkeyPatch, large: Callable[[Served], Awaitable[str]]
) -> None:
    monkeypatch.setattr("sandboxd.api.shares.BYTES_OF_CALLER", 1 << 20)
    async with served() as server:
        path = await large(server)
        reader, writer = await server.connect()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await reader.readuntil(b"x" * 1000)
        second = asyncio.create_task(server.ask("GET", path))
        done, _ = await asyncio.wait([second], timeout=0.5)
        assert not done
        writer.transport.abort()
        async with asyncio.timeout(20):
            assert (await second).status == 200


def homes(server: Served) -> int:
    """How many sandboxes have their files yet."""
    return sum(what.startswith("home ") for what in server.world.held)


async def test_files_of_a_run_are_read_once_there_is_room_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandboxd.api.shares.BYTES_OF_CALLER", 1 << 20)
    async with served() as server:
        path = await of_sandbox(server)
        reader, writer = await server.connect()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await reader.readuntil(b"x" * 1000)
        home = FakeFiles({b"a": b"y" * 100_000, b"b": b"z"})
        server.world.files = cast("SandboxFiles", home)
        body = {"argv": ["true"], "read_files": ["a", "missing", "b"]}
        ran = asyncio.create_task(server.ask("POST", "/v1/run", body))
        left = asyncio.create_task(server.ask("POST", "/v1/run", body))
        done, _ = await asyncio.wait([ran, left], timeout=0.5)
        assert not done
        assert home.opened == []
        # Of one whose client leaves none is read, and nothing waits for that.
        left.cancel()
        writer.transport.abort()
        async with asyncio.timeout(20):
            answer = (await ran).json
        await server.world.until(lambda: homes(server) == 1)
        assert [file["text"] for file in answer["files"]] == ["y" * 100_000, None, "z"]
        assert answer["files"][1]["error"]["code"] == "FILE_NOT_FOUND"
        assert home.opened == [b"a", b"b"]
