# SPDX-License-Identifier: Apache-2.0
"""Threads for files: one caller's work, long or much, never keeps another one's from its turn."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from sandboxd.core.turns import Turn
from sandboxd.osutil.privileges import of_this_process
from sandboxd.workspace.workers import Workers

HOSTILE, CALM = Turn(1, "hostile"), Turn(2, "calm")
UID = os.getuid()


@contextmanager
def made(threads: int) -> Iterator[Workers]:
    workers = Workers("files", of_this_process(), threads)
    try:
        yield workers
    finally:
        workers.close()


def run(threads: int, work: Callable[[Workers], Awaitable[None]]) -> None:
    """Run `work`; its own bound is that a deadlock would never end."""

    async def bounded() -> None:
        with made(threads) as workers:
            async with asyncio.timeout(30):
                await work(workers)

    # Threads that have been another uid's cannot be the test's own any more.
    with ThreadPoolExecutor(1) as apart:
        apart.submit(asyncio.run, bounded()).result()


def test_who_blocks_threads_leaves_some_for_others() -> None:
    async def work(workers: Workers) -> None:
        end = threading.Event()
        blocked = [
            asyncio.create_task(workers.run(Turn(1, str(n)), UID, end.wait)) for n in range(100)
        ]
        await asyncio.sleep(0)
        assert await workers.run(CALM, UID, int, "7") == 7
        end.set()
        assert await asyncio.gather(*blocked) == [True] * 100

    run(8, work)


def test_long_work_gives_way() -> None:
    goes_on = True

    def endless() -> Generator[None, None, str]:
        while goes_on:
            yield
        return "ended"

    async def work(workers: Workers) -> None:
        nonlocal goes_on
        long = [asyncio.create_task(workers.run_steps(HOSTILE, UID, endless())) for _ in range(5)]
        for _ in range(3):
            assert await workers.run(CALM, UID, int, "7") == 7
        assert not any(task.done() for task in long)
        goes_on = False
        assert await asyncio.gather(*long) == ["ended"] * 5

    run(1, work)


def test_long_work_ends_where_it_is_cancelled() -> None:
    closed = threading.Event()

    def endless() -> Generator[None, None, None]:
        try:
            while True:
                yield
        finally:
            closed.set()

    async def work(workers: Workers) -> None:
        task = asyncio.create_task(workers.run_steps(HOSTILE, UID, endless()))
        await asyncio.sleep(0)
        await workers.run(CALM, UID, int, "7")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed.is_set()

    run(1, work)


def test_an_error_in_a_step_is_raised() -> None:
    def broken() -> Generator[None, None, None]:
        yield
        raise FileNotFoundError("gone")

    async def work(workers: Workers) -> None:
        with pytest.raises(FileNotFoundError, match="gone"):
            await workers.run_steps(HOSTILE, UID, broken())

    run(1, work)


def test_what_waits_and_is_cancelled_never_begins() -> None:
    async def work(workers: Workers) -> None:
        end = threading.Event()
        first = asyncio.create_task(workers.run(HOSTILE, UID, end.wait))
        began = threading.Event()
        second = asyncio.create_task(workers.run(CALM, UID, began.set))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        end.set()
        await first
        assert not began.is_set()

    run(1, work)
