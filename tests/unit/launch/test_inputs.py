# SPDX-License-Identifier: Apache-2.0
"""Writing to a pipe and to a terminal: never more than fits, and an end that is told."""

from __future__ import annotations

import asyncio
import os
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from sandboxd.errors import StdinClosed
from sandboxd.launch.inputs import InputPipe

LARGE = memoryview(bytes(1 << 20))


@asynccontextmanager
async def piped() -> AsyncIterator[tuple[int, InputPipe]]:
    """The read end, and the write end as the daemon has it."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    target = InputPipe(write, is_terminal=False)
    try:
        yield read, target
    finally:
        target.close()
        target.close()
        with suppress(OSError):
            os.close(read)


async def fill(target: InputPipe) -> int:
    """Write until it would wait."""
    written = 0
    while True:
        writing = asyncio.create_task(target.write(LARGE))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not writing.done():
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing
            return written
        written += writing.result()


async def test_it_writes_what_fits_and_waits_for_room() -> None:
    async with piped() as (read, target):
        assert await fill(target) == 65_536
        waiting = asyncio.create_task(target.write(memoryview(b"later")))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert len(os.read(read, 65_536)) == 65_536
        assert await waiting == 5
        assert os.read(read, 100) == b"later"


async def test_it_tells_when_nobody_reads_any_more() -> None:
    async with piped() as (read, target):
        await fill(target)
        waiting = asyncio.create_task(target.write(LARGE))
        await asyncio.sleep(0)
        os.close(read)
        with pytest.raises(StdinClosed):
            await waiting


async def test_who_waits_is_told_when_the_execution_is_over() -> None:
    async with piped() as (_, target):
        await fill(target)
        waiting = asyncio.create_task(target.write(LARGE))
        await asyncio.sleep(0)
        # Another execution may hold the read end: there is no EPIPE.
        target.close()
        with pytest.raises(StdinClosed):
            await waiting
        with pytest.raises(StdinClosed):
            await target.write(LARGE)


async def test_a_terminal_that_is_hung_up_is_closed_and_has_its_own_end() -> None:
    master, slave = os.openpty()
    os.set_blocking(master, False)
    target = InputPipe(master, is_terminal=True)
    assert target.end_character() == b"\x04"
    attributes = termios.tcgetattr(slave)
    attributes[6][termios.VEOF] = b"#"
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    assert target.end_character() == b"#"
    attributes[6][termios.VEOF] = b"\0"
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    assert target.end_character() == b"\x04"
    assert await target.write(memoryview(b"line\n")) == 5
    assert os.read(slave, 100) == b"line\n"
    os.close(slave)
    target.close()
    assert target.end_character() == b"\x04"
