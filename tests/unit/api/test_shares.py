# SPDX-License-Identifier: Apache-2.0
"""Turns and bytes of callers: whoever asks for much waits for itself alone."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

from sandboxd.api.shares import BYTES_OF_CALLER, LITTLE_BYTES, SMALL_BYTES, Share, Shares

GREEDY, MODEST = 1000, 1001


async def test_each_caller_has_a_turn_in_each_round() -> None:
    shares, order = Shares(), []

    async def work(uid: int, count: int) -> None:
        for _ in range(count):
            await shares.turn(uid)
            order.append(uid)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(work(GREEDY, 10))
        tasks.create_task(work(MODEST, 5))
    assert len(order) == 1005
    last = len(order) - 1 - order[::-1].index(MODEST)
    assert order[: last + 1].count(GREEDY) <= 8


async def test_who_holds_up_the_loop_rests_if_there_is_anybody_else() -> None:
    shares, order = Shares(), []
    loop = asyncio.get_running_loop()

    async def hold_up(count: int) -> None:
        for _ in range(count):
            await shares.turn(GREEDY)
            order.append(loop.time())
            with shares.long_turn(GREEDY):
                # What is meant is a loop that stands still.
                time.sleep(0.02)  # noqa: ASYNC251

    begun = loop.time()
    await hold_up(5)
    alone = loop.time() - begun
    await shares.turn(MODEST)
    order.clear()
    await asyncio.gather(*(hold_up(1) for _ in range(4)))
    assert all(later - sooner >= 0.1 for sooner, later in pairwise(order))
    assert alone < 0.35
    # Its rest is nobody else's.
    async with asyncio.timeout(0.05):
        for _ in range(5):
            await shares.turn(MODEST)


async def test_what_gets_large_waits_from_then_on() -> None:
    shares = Shares()
    first, second, third = (Share(shares, GREEDY) for _ in range(3))
    for share in (first, second, third):
        await share.hold_more(LITTLE_BYTES, BYTES_OF_CALLER // 2)
    await first.hold_more(LITTLE_BYTES + 1, BYTES_OF_CALLER // 2)
    # Counted already, whatever else comes.
    await first.hold_more(LITTLE_BYTES + 2, BYTES_OF_CALLER // 2)
    await second.hold_more(LITTLE_BYTES + 1, BYTES_OF_CALLER // 2)
    waits = asyncio.create_task(third.hold_more(LITTLE_BYTES + 1, BYTES_OF_CALLER // 2))
    async with asyncio.timeout(5):
        await Share(shares, MODEST).hold_more(LITTLE_BYTES + 1, BYTES_OF_CALLER)
    assert not waits.done()
    first.release()
    await waits


async def test_a_turn_that_nobody_waits_for_any_more_is_the_next_ones() -> None:
    shares = Shares()
    await shares.turn(GREEDY)
    left, stays = (asyncio.ensure_future(shares.turn(GREEDY)) for _ in range(2))
    await asyncio.sleep(0)
    left.cancel()
    async with asyncio.timeout(5):
        await stays


async def test_bytes_are_of_each_caller_and_in_order() -> None:
    shares = Shares()
    first, second, third = (Share(shares, GREEDY) for _ in range(3))
    await first.hold(BYTES_OF_CALLER)
    waiting = asyncio.ensure_future(second.hold(BYTES_OF_CALLER // 2))
    behind = asyncio.ensure_future(third.hold(SMALL_BYTES + 1))
    await Share(shares, MODEST).hold(BYTES_OF_CALLER)
    await Share(shares, GREEDY).hold(SMALL_BYTES)
    assert not waiting.done()
    # A small one does not pass a large one, which would else never get there.
    first.shrink(BYTES_OF_CALLER - SMALL_BYTES - 1)
    await asyncio.sleep(0)
    assert not behind.done()
    first.release()
    await asyncio.gather(waiting, behind)


async def test_what_is_more_than_all_waits_for_all() -> None:
    shares = Shares()
    first, second = Share(shares, GREEDY), Share(shares, GREEDY)
    await first.hold(10 * BYTES_OF_CALLER)
    waiting = asyncio.ensure_future(second.hold(10 * BYTES_OF_CALLER))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.release()
    await waiting


async def test_who_leaves_takes_no_room_and_holds_up_nobody() -> None:
    shares = Shares()
    first, second, third = (Share(shares, GREEDY) for _ in range(3))
    await first.hold(BYTES_OF_CALLER - SMALL_BYTES - 1)
    leaves = asyncio.ensure_future(second.hold(BYTES_OF_CALLER))
    behind = asyncio.ensure_future(third.hold(SMALL_BYTES + 1))
    await asyncio.sleep(0)
    leaves.cancel()
    await behind
    # One that leaves in the very moment in which it was let in.
    late = asyncio.ensure_future(second.hold(BYTES_OF_CALLER))
    await asyncio.sleep(0)
    first.release()
    third.release()
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    async with asyncio.timeout(5):
        await first.hold(BYTES_OF_CALLER)
