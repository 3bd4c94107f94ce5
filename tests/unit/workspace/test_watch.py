# SPDX-License-Identifier: Apache-2.0
"""Notices of writes, by the kernel and without it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandboxd.workspace import watch
from sandboxd.workspace.watch import DirectoryWatches


@asynccontextmanager
async def watches() -> AsyncIterator[DirectoryWatches]:
    made = DirectoryWatches()
    try:
        yield made
    finally:
        made.close()


async def rung(event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(10):
            await event.wait()
    finally:
        event.clear()
    return True


async def test_each_watcher_learns_of_a_write_to_its_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second, other = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with watches() as made:
        with (
            made.watching(str(tmp_path / "a"), first.set),
            made.watching(str(tmp_path / "a"), second.set),
            made.watching(str(tmp_path / "b"), other.set),
        ):
            (tmp_path / "a" / "stdout").write_text("x")
            assert await rung(first)
            assert await rung(second)
            assert not other.is_set()
            (tmp_path / "b" / "stdout").write_text("x")
            assert await rung(other)
        with made.watching(str(tmp_path / "a"), first.set):
            first.clear()
            (tmp_path / "a" / "stdout").write_text("y")
            assert await rung(first)


async def test_times_beside_output_wake_nobody(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    news, other = asyncio.Event(), asyncio.Event()
    async with watches() as made:
        with (
            made.watching(str(tmp_path / "a"), news.set),
            made.watching(str(tmp_path / "b"), other.set),
        ):
            for name in ("stdout.times", "stdout.times.tmp"):
                (tmp_path / "a" / name).write_text("x")
            # The kernel tells of writes in their order.
            (tmp_path / "b" / "stdout").write_text("x")
            assert await rung(other)
            assert not news.is_set()
            (tmp_path / "a" / "stdout").write_text("x")
            assert await rung(news)


async def test_a_directory_that_goes_away_is_no_harm(tmp_path: Path) -> None:
    news, other = asyncio.Event(), asyncio.Event()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with watches() as made:
        with made.watching(str(tmp_path / "b"), other.set):
            with made.watching(str(tmp_path / "a"), news.set):
                (tmp_path / "a").rmdir()
                (tmp_path / "b" / "f").write_text("x")
                assert await rung(other)
            (tmp_path / "b" / "f").write_text("y")
            assert await rung(other)
        # What was never there: its reader finds out by itself.
        with made.watching(str(tmp_path / "none"), news.set):
            assert await rung(news)


async def test_without_watches_it_looks_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_result: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(watch, "checked", refuse)
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.01)
    news = asyncio.Event()
    async with watches() as made:
        with made.watching(str(tmp_path), news.set):
            assert await rung(news)
            assert await rung(news)
        await asyncio.sleep(0.05)
        assert not news.is_set()


async def test_an_overflow_counts_as_a_change_of_everything(tmp_path: Path) -> None:
    news = asyncio.Event()
    overflow = watch._EVENT.pack(-1, watch._IN_Q_OVERFLOW, 0, 0)
    async with watches() as made:
        with made.watching(str(tmp_path), news.set):
            read, write = os.pipe()
            os.write(write, overflow)
            kept, made._fd = made._fd, read
            made._read()
            made._fd = kept
            os.close(read)
            os.close(write)
            assert news.is_set()
