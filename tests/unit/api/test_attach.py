# SPDX-License-Identifier: Apache-2.0
"""Attaching and events, where it takes a scripted program to see them."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from sandboxd.api import following
from sandboxd.api.connection import MAX_MESSAGE_BYTES, MAX_WAITING_MESSAGES
from sandboxd.api.frames import Frames
from sandboxd.api.head import PIECE_BYTES
from tests.unit.api.harness import Served, served
from tests.unit.api.test_follow import begin, get, nobody_follows
from tests.unit.fakes.shims import FakeShim


def attach(server: Served, path: str) -> aiohttp.client._WSRequestContextManager:
    return server.session.ws_connect(f"http://localhost{path}/attach")


def room_of(shim: FakeShim) -> asyncio.Event:
    """Whether its command reads its input."""
    assert shim.stdin is not None
    return shim.stdin.room


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
        shim, path = await begin(server)
        async with attach(server, path) as socket:
            await socket.receive_json()
            await socket.close()
        await nobody_follows(server, shim)


async def test_large_messages_of_one_caller_are_kept_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may be a MiB, of any number of clients, and be there until a program reads it."""
    monkeypatch.setattr("sandboxd.api.shares.BYTES_OF_CALLER", MAX_MESSAGE_BYTES)
    large = b"x" * (MAX_MESSAGE_BYTES - 1)
    async with served() as server:
        shim, path = await begin(server, stdin_open=True)
        room = room_of(shim)
        room.clear()
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
            room.set()
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
        shim, path = await begin(server, stdin_open=True)
        room = room_of(shim)
        room.clear()
        async with attach(server, path) as socket:
            await socket.receive_json()
            connection = socket._response.connection
            assert connection is not None
            assert connection.transport is not None
            transport, empty = connection.transport, b"\x82\x80mask"
            await socket.send_bytes(b"begin")
            transport.write(empty * 60_000)
            await socket.send_bytes(b"end")
            await socket.send_str('{"type": "close_stdin"}')
            await asyncio.sleep(0.5)
            assert transport.get_write_buffer_size() > 0
            room.set()
            await server.world.until(lambda: "close_input" in shim.orders)
            assert shim.stdin is not None
            assert shim.stdin.taken == b"beginend"
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
        shim, path = await begin(server)
        async with attach(server, path) as socket:
            await socket.receive_json()
            assert await socket.receive_bytes() == b"\1out\n"
            shim.print("stderr", b"last")
            shim.finish()
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
        shim, path = await begin(server)
        async with get(server, f"{path}/events") as answer:
            assert await answer.content.readuntil(b"\n\n") == (
                b"id: 4-0\nevent: stdout\n"
                b'data: {"offset_bytes":0,"size_bytes":4,"text":"out\\n"}\n\n'
            )
            assert await answer.content.readuntil(b"\n\n") == b": still here\n\n"
            shim.finish()
            while b"exit" not in (event := await answer.content.readuntil(b"\n\n")):
                assert event == b": still here\n\n"
            assert await answer.content.read() == b""


async def test_half_a_character_waits_and_is_told_at_the_end_as_it_is() -> None:
    async with served() as server:
        shim, path = await begin(server, b"a\xe2")
        async with get(server, f"{path}/events") as answer:
            assert b'"size_bytes":1,"text":"a"}' in await answer.content.readuntil(b"\n\n")
            shim.print("stdout", b"\x82")
            shim.print("stderr", b"e")
            # A place in between is a whole character's, so that none is told twice or never.
            assert (await answer.content.readuntil(b"\n\n")).startswith(b"id: 1-1\nevent: stderr")
            shim.finish()
            half = await answer.content.readuntil(b"\n\n")
            assert half.startswith(b"id: 3-1\nevent: stdout")
            assert '"text":"\ufffd","base64":"4oI="'.encode() in half
            assert (await answer.content.readuntil(b"\n\n")).startswith(b"id: 3-1-exit\n")
