# SPDX-License-Identifier: Apache-2.0
"""Periodic work rests while no sandbox lives."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from sandboxd.core.model import Caller
from sandboxd.engine import upkeep
from sandboxd.engine.requests import SandboxRequest
from tests.unit.fakes.engine import make_engine, make_upkeep
from tests.unit.fakes.world import World

CALLER = Caller(1000, 1000, 1, is_admin=False)
FOR_EVER = 3600.0


async def test_a_host_without_sandboxes_is_left_alone_until_one_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "_IDLE_SECONDS", FOR_EVER)
    engine, context = make_engine(World())
    rounds = 0
    third = asyncio.Event()

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            third.set()

    task = asyncio.create_task(make_upkeep(context)._repeat("a test", 0.01, work))
    async with context.tasks:
        try:
            await asyncio.sleep(0.1)
            assert rounds == 0
            made = await engine.create_sandbox(CALLER, SandboxRequest())
            await asyncio.wait_for(third.wait(), 10)
            await engine.release_sandbox(CALLER, made.id)
            await asyncio.sleep(0.05)
            before = rounds
            await asyncio.sleep(0.1)
            assert rounds == before
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_what_waits_for_a_sandbox_does_not_wait_for_ever() -> None:
    _, context = make_engine(World())
    await asyncio.wait_for(context.registry.some_live(0.01), 10)
