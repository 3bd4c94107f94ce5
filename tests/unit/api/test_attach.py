# SPDX-License-Identifier: Apache-2.0
"""Attaching and events, where it takes a scripted engine to see them."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from sandboxd.api import following
from sandboxd.api.connection import MAX_MESSAGE_BYTES, MAX_WAITING_MESSAGES
from sandboxd.api.frames import Frames
from sandboxd.api.head import PIECE_BYTES
from sandboxd.core.model import Caller
from tests.unit.api.harness import Served, served
from tests.unit.api.test_follow import EXITED, begin, get


def attach(server: Served, path: str) -> aiohttp.client._WSRequestContextManager:
    return server.session.ws_connect(f"http://localhost{path}/attach")


async def test_a_stopping_server_says_so_to_who_is_attached() -> None:
    async with served() as server:
        _, path = await begin(server)
        socket = await attach(server, path).__aenter__()
        assert (await socket.receive_json())["stdout_offset_bytes"] == 0
        assert await socket.receive_bytes() == b"\1out\n"
    last = await socket.receive()
    assert (last.type, last.data) == (aiohttp.WSMsgType.CLOSE, 1001)


async def test_who_closes_in_good_form_is_answered_and_forgotten() -> None:
    async with served() as server:
        execution, path = await begin(server)
        async with attach(server, path) as socket:
            await socket.receive_json()
            await socket.close()
        async with asyncio.timeout(10):
            await server.engine.unfollowed.wait()
        assert server.engine.followers[execution.id] == []


async def test_large_messages_of_one_caller_are_kept_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may be a MiB, of any number of clients, and be there until a program reads it."""
    monkeypatch.setattr("sandboxd.api.shares.BYTES_OF_CALLER", MAX_MESSAGE_BYTES)
    large = b"x" * (MAX_MESSAGE_BYTES - 1)
    async with served() as server:
        _, path = await begin(server, stdin_open=True)
        server.engine.may_write.clear()
        async with attach(server, path) as one, attach(server, path) as two:
            for socket in (one, two):
                await socket.receive_json()
                assert await socket.receive_bytes() == b"\1out\n"
            await asyncio.wait_for(one.send_bytes(large), 10)
            # Kept by sockets and buffers as far as these go: the rest is not taken.
            sending = asyncio.create_task(two.send_bytes(large))
            done, _ = await asyncio.wait([sending], timeout=0.5)
            assert not done
            # What is small needs no turn.
            async with attach(server, path) as three:
                await three.receive_json()
                await asyncio.wait_for(three.send_bytes(b"small"), 10)
            server.engine.may_write.set()
            await asyncio.wait_for(sending, 10)


async def test_messages_without_anything_in_them_are_not_kept_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is any lost: what is sent after them arrives once the program reads."""
    most = 0
    feed = Frames.feed

    def counted(frames: Frames, data: bytes) -> None:
        nonlocal most
        feed(frames, data)
        most = max(most, frames.waiting)

    monkeypatch.setattr(Frames, "feed", counted)
    async with served() as server:
        execution, path = await begin(server, stdin_open=True)
        server.engine.may_write.clear()
        async with attach(server, path) as socket:
            await socket.receive_json()
            connection = socket._response.connection
            assert connection is not None
            assert connection.transport is not None
            transport, empty = connection.transport, b"\x82\x80mask"
            transport.write(empty * 200_000)
            await socket.send_bytes(b"end")
            await socket.send_str('{"type": "close_stdin"}')
            await asyncio.sleep(0.5)
            assert transport.get_write_buffer_size() > 0
            closed, close = asyncio.Event(), server.engine.close_input

            async def close_input(caller: Caller, ref: str, execution_id: str) -> None:
                await close(caller, ref, execution_id)
                closed.set()

            monkeypatch.setattr(server.engine, "close_input", close_input)
            server.engine.may_write.set()
            async with asyncio.timeout(60):
                await closed.wait()
            assert server.engine.fed[execution.id] == b"end"
    # And one piece.
    assert most <= MAX_WAITING_MESSAGES + PIECE_BYTES // len(empty)


async def test_a_client_that_leaves_in_the_middle_of_a_message_gives_its_room_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandboxd.api.shares.BYTES_OF_CALLER", MAX_MESSAGE_BYTES)
    large = b"x" * (MAX_MESSAGE_BYTES - 1)
    async with served() as server:
        _, path = await begin(server, stdin_open=True)
        for _ in range(3):
            async with attach(server, path) as leaves:
                await leaves.receive_json()
                connection = leaves._response.connection
                assert connection is not None
                assert connection.transport is not None
                header = b"\x82\xff" + (MAX_MESSAGE_BYTES - 1).to_bytes(8, "big") + b"mask"
                connection.transport.write(header + large[: 128 << 10])
                connection.transport.close()
        async with attach(server, path) as stays:
            await stays.receive_json()
            await asyncio.wait_for(stays.send_bytes(large), 10)


async def test_what_is_printed_last_is_sent_before_the_end() -> None:
    async with served() as server:
        execution, path = await begin(server)
        async with attach(server, path) as socket:
            await socket.receive_json()
            assert await socket.receive_bytes() == b"\1out\n"
            server.engine.print(execution.id, "stderr", b"last")
            server.engine.finish(execution, EXITED)
            assert await socket.receive_bytes() == b"\2last"
            told = await socket.receive_json()
            assert (told["type"], told["execution"]["status"]) == ("exit", "EXITED")
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 1000


async def test_a_quiet_stream_of_events_gives_signs_of_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "QUIET_SECONDS", 0.02)
    async with served() as server:
        execution, path = await begin(server)
        async with get(server, f"{path}/events") as answer:
            assert await answer.content.readuntil(b"\n\n") == (
                b"id: 4-0\nevent: stdout\n"
                b'data: {"offset_bytes":0,"size_bytes":4,"text":"out\\n"}\n\n'
            )
            assert await answer.content.readuntil(b"\n\n") == b": still here\n\n"
            server.engine.finish(execution, EXITED)
            while b"exit" not in (event := await answer.content.readuntil(b"\n\n")):
                assert event == b": still here\n\n"
            assert await answer.content.read() == b""


async def test_half_a_character_waits_and_is_told_at_the_end_as_it_is() -> None:
    async with served() as server:
        server.engine.stdout = b"a\xe2"
        execution, path = await begin(server)
        async with get(server, f"{path}/events") as answer:
            assert b'"size_bytes":1,"text":"a"}' in await answer.content.readuntil(b"\n\n")
            server.engine.print(execution.id, "stdout", b"\x82")
            server.engine.print(execution.id, "stderr", b"e")
            # A place in between is a whole character's, so that none is told twice or never.
            assert (await answer.content.readuntil(b"\n\n")).startswith(b"id: 1-1\nevent: stderr")
            server.engine.finish(execution, EXITED)
            half = await answer.content.readuntil(b"\n\n")
            assert half.startswith(b"id: 3-1\nevent: stdout")
            assert '"text":"\ufffd","base64":"4oI="'.encode() in half
            assert (await answer.content.readuntil(b"\n\n")).startswith(b"id: 3-1-exit\n")
