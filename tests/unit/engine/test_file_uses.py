# SPDX-License-Identifier: Apache-2.0
"""How many requests at once may use files: of a sandbox and of each caller."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

import pytest

from sandboxd.core.model import Caller, LimitChanges
from sandboxd.core.policy import MIN_MEMORY_BYTES
from sandboxd.engine.requests import SandboxRequest
from sandboxd.errors import QuotaExceeded
from tests.unit.fakes.engine import make_engine
from tests.unit.fakes.world import World
from tests.unit.values import LIMITS

ME = Caller(1000, 1000, 1, is_admin=False)
OTHER = Caller(1001, 1001, 1, is_admin=False)
MODEST = Caller(2000, 2000, 1, is_admin=False)
ROOT = Caller(0, 0, 1, is_admin=True)
SMALL = SandboxRequest(limits=LimitChanges(memory_bytes=LIMITS.memory_bytes // 10))


async def test_one_caller_leaves_room_for_the_others() -> None:
    engine, _ = make_engine(World())
    mine = [(await engine.create_sandbox(ME, SMALL)).id for _ in range(5)]
    other = (await engine.create_sandbox(OTHER, SMALL)).id
    async with AsyncExitStack() as held:
        for _ in range(64):
            await held.enter_async_context(engine.files(ME, mine[0]))
        with pytest.raises(QuotaExceeded, match=f"uid 1000 has 64 uses of files of {mine[0]}"):
            await held.enter_async_context(engine.files(ME, mine[0]))
        # What its owner does keeps no admin from it.
        await held.enter_async_context(engine.files(ROOT, mine[0]))
        for sandbox in mine[1:4]:
            for _ in range(64):
                await held.enter_async_context(engine.files(ME, sandbox))
        with pytest.raises(QuotaExceeded, match="uid 1000 has 256 uses of files,"):
            await held.enter_async_context(engine.files(ME, mine[4]))
        await held.enter_async_context(engine.files(OTHER, other))
        await held.enter_async_context(engine.files(ROOT, mine[4]))
    async with engine.files(ME, mine[4]):
        pass


async def test_many_greedy_callers_leave_room_for_the_next() -> None:
    engine, _ = make_engine(World())
    request = SandboxRequest(limits=LimitChanges(memory_bytes=MIN_MEMORY_BYTES))
    async with AsyncExitStack() as held:
        for uid in range(1000, 1020):
            caller = Caller(uid, uid, 1, is_admin=False)
            with suppress(QuotaExceeded):
                for _ in range(4):
                    sandbox = (await engine.create_sandbox(caller, request)).id
                    for _ in range(64):
                        await held.enter_async_context(engine.files(caller, sandbox))
        mine = (await engine.create_sandbox(MODEST, request)).id
        for _ in range(8):
            await held.enter_async_context(engine.files(MODEST, mine))
