# SPDX-License-Identifier: Apache-2.0
"""Input is written in turns, told exactly, and ends as its execution does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from sandboxd.core.model import Caller, Command, TerminalSize
from sandboxd.engine.engine import Engine
from sandboxd.engine.requests import ExecutionRequest, Progress, SandboxRequest
from sandboxd.errors import ExecutionFinished, InvalidRequest, StdinClosed
from tests.unit.fakes.engine import make_engine
from tests.unit.fakes.shims import FakeInput, FakeShim
from tests.unit.fakes.world import World

ME = Caller(1000, 1000, 1, is_admin=False)
OPEN = Command(argv=("cat",), stdin_open=True)


@dataclass
class Running:
    engine: Engine
    ref: str
    id: str
    shim: FakeShim
    stdin: FakeInput

    async def write(self, *chunks: bytes, progress: Progress | None = None) -> None:
        async def given() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        await self.engine.write_input(ME, self.ref, self.id, given(), progress or Progress())

    async def write_as_it_comes(self, coming: asyncio.Queue[bytes | None]) -> None:
        async def given() -> AsyncIterator[bytes]:
            while (chunk := await coming.get()) is not None:
                yield chunk

        await self.engine.write_input(ME, self.ref, self.id, given(), Progress())

    async def close(self) -> None:
        await self.engine.close_input(ME, self.ref, self.id)


@asynccontextmanager
async def running(command: Command = OPEN) -> AsyncIterator[Running]:
    world = World()
    engine, context = make_engine(world)
    async with context.tasks:
        sandbox = await engine.create_sandbox(ME, SandboxRequest())
        execution = await engine.start_execution(ME, sandbox.id, ExecutionRequest(command))
        shim = world.shims[execution.id]
        shim.stdin = FakeInput(is_terminal=command.tty is not None)
        shim.stdin.room.set()
        yield Running(engine, sandbox.id, execution.id, shim, shim.stdin)
        context.tasks.cancel_all()


async def test_one_writer_is_done_before_the_next_and_the_end_comes_last() -> None:
    async with running() as it:
        it.stdin.room.clear()
        tasks = [asyncio.create_task(it.write(b"aaa", b"aaaa"))]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(it.write(b"bbb")), asyncio.create_task(it.close())]
        await asyncio.sleep(0)
        assert it.shim.orders == []
        it.stdin.room.set()
        await asyncio.gather(*tasks)
        assert it.stdin.taken == b"aaaaaaabbb"
        assert it.shim.orders == ["close_input"]
        await it.close()
        with pytest.raises(StdinClosed):
            await it.write(b"late")


async def test_a_writer_with_nothing_to_write_lets_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandboxd.engine.inputs._QUIET_SECONDS", 0.01)
    async with running() as it, asyncio.timeout(10):
        coming: asyncio.Queue[bytes | None] = asyncio.Queue()
        slow = asyncio.create_task(it.write_as_it_comes(coming))
        coming.put_nowait(b"aaa")
        await asyncio.sleep(0)
        await it.write(b"bbb")
        assert it.stdin.taken == b"aaabbb"
        coming.put_nowait(b"ccc")
        coming.put_nowait(None)
        await slow
        assert it.stdin.taken == b"aaabbbccc"
        # One that is closed over goes for nothing, and is told so.
        late = asyncio.create_task(it.write_as_it_comes(coming))
        await it.close()
        coming.put_nowait(b"ddd")
        with pytest.raises(StdinClosed):
            await late
        # And one that leaves while it has nothing to write leaves nothing.
        leaving = asyncio.create_task(it.write_as_it_comes(coming))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises((asyncio.CancelledError, StdinClosed)):
            await leaving


async def test_a_writer_that_leaves_gives_its_turn_up() -> None:
    async with running() as it:
        it.stdin.room.clear()
        progress = Progress()
        leaving = asyncio.create_task(it.write(b"aaaa", progress=progress))
        await asyncio.sleep(0)
        leaving.cancel()
        it.stdin.room.set()
        await it.write(b"b")
        assert (it.stdin.taken, progress.written_bytes) == (b"b", 0)


async def test_input_that_breaks_because_of_the_end_is_told_as_the_end() -> None:
    async with running() as it:
        it.stdin.is_broken = True
        asyncio.get_running_loop().call_later(0.01, it.shim.finish)
        with pytest.raises(ExecutionFinished):
            await it.write(b"x")
        with pytest.raises(ExecutionFinished):
            await it.close()


async def test_input_that_breaks_alone_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxd.engine.inputs._END_SECONDS", 0.01)
    async with running() as it:
        await it.write(b"abc")
        it.stdin.is_broken = True
        with pytest.raises(StdinClosed):
            await it.write(b"x")


async def test_what_is_not_open_takes_nothing() -> None:
    async with running(Command(argv=("cat",))) as it:
        for refused in (it.write(b"x"), it.close()):
            with pytest.raises(StdinClosed):
                await refused
        with pytest.raises(InvalidRequest):
            await it.engine.resize_terminal(ME, it.ref, it.id, TerminalSize(1, 2))


async def test_a_terminal_is_sent_a_key_for_the_end() -> None:
    async with running(Command(argv=("cat",), tty=TerminalSize(24, 80))) as it:
        await it.close()
        await it.write(b"more")
        assert it.stdin.taken == b"\x04more"
        await it.engine.resize_terminal(ME, it.ref, it.id, TerminalSize(1, 2))
        assert it.shim.orders == ["resize 1 2"]


async def test_followers_are_told_of_the_end_and_forgotten() -> None:
    async with running() as it:
        with it.engine.follow(ME, it.ref, it.id) as news:
            it.shim.finish()
            async with asyncio.timeout(10):
                await news.wait()
            assert it.engine.get_execution(ME, it.ref, it.id).is_finished
            assert it.shim.world.records[it.id].rings
        assert it.shim.world.records[it.id].rings == []
