# SPDX-License-Identifier: Apache-2.0
"""How many requests at once may use files: of a sandbox, of a caller and in all."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from sandboxd.core.model import Caller, LimitChanges
from sandboxd.engine.requests import SandboxRequest
from sandboxd.errors import QuotaExceeded
from tests.unit.engine.fakes.engine import make_engine
from tests.unit.engine.fakes.world import World
from tests.unit.values import LIMITS

ME = Caller(1000, 1000, 1, is_admin=False)
OTHER = Caller(1001, 1001, 1, is_admin=False)
ROOT = Caller(0, 0, 1, is_admin=True)
SMALL = SandboxRequest(limits=LimitChanges(memory_bytes=LIMITS.memory_bytes // 10))


async def test_one_caller_leaves_room_for_the_others() -> None:
    engine, _ = make_engine(World())
    mine = [(await engine.create_sandbox(ME, SMALL)).id for _ in range(5)]
    other = (await engine.create_sandbox(OTHER, SMALL)).id
    async with AsyncExitStack() as held:
        for _ in range(64):
            await held.enter_async_context(engine.files(ME, mine[0]))
        with pytest.raises(QuotaExceeded, match="64 requests of sandbox"):
            await held.enter_async_context(engine.files(ME, mine[0]))
        for sandbox in mine[1:4]:
            for _ in range(64):
                await held.enter_async_context(engine.files(ME, sandbox))
        with pytest.raises(QuotaExceeded, match="256 requests of uid 1000"):
            await held.enter_async_context(engine.files(ME, mine[4]))
        await held.enter_async_context(engine.files(OTHER, other))
        await held.enter_async_context(engine.files(ROOT, mine[4]))
    async with engine.files(ME, mine[4]):
        pass
