# SPDX-License-Identifier: Apache-2.0
"""Both ways in which flows wait, and flows that are run without an event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Iterator

import pytest

from sandboxd.client.aio import LoopWaits
from sandboxd.client.blocking import BlockingWaits, blocking, finish, iterate
from sandboxd.client.transport import Waits

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[tuple[Pair, Pair]]:
    made = (socket.socketpair(), socket.socketpair())
    for end in (*made[0], *made[1]):
        end.setblocking(False)
    yield made
    for end in (*made[0], *made[1]):
        end.close()


BOTH = pytest.mark.parametrize("kind", [BlockingWaits, LoopWaits])


@BOTH
async def test_of_several_connections_the_readable_ones_are_named(
    kind: Callable[[], Waits], pairs: tuple[Pair, Pair]
) -> None:
    waits = kind()
    (ours, theirs), (other, others_end) = pairs
    theirs.send(b"x")
    assert list(await waits.readable([other, ours], 10)) == [ours]
    others_end.close()
    assert set(await waits.readable([other, ours], None)) == {other, ours}


@BOTH
async def test_a_wait_that_takes_too_long_is_an_error(
    kind: Callable[[], Waits], pairs: tuple[Pair, Pair]
) -> None:
    waits = kind()
    (ours, _), _ = pairs
    with pytest.raises(TimeoutError):
        await waits.readable([ours], 0.01)
    with pytest.raises(TimeoutError):
        await waits.send(ours, bytes(8 << 20), 0.01)


async def test_what_is_readable_already_lets_other_tasks_run(pairs: tuple[Pair, Pair]) -> None:
    (ours, theirs), _ = pairs
    theirs.send(b"x")
    other = asyncio.create_task(asyncio.sleep(0))
    while not other.done():
        await LoopWaits().readable([ours], 10)


async def test_a_wait_that_was_cancelled_watches_nothing(pairs: tuple[Pair, Pair]) -> None:
    (ours, theirs), _ = pairs
    waiting = asyncio.create_task(LoopWaits().readable([ours], None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    theirs.send(b"x")
    assert not asyncio.get_running_loop().remove_reader(ours)


def test_a_flow_that_needs_an_event_loop_is_refused_and_ended() -> None:
    ends = []

    async def flow() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ends.append("ended")

    with pytest.raises(RuntimeError, match="event loop"):
        finish(flow())
    assert ends == ["ended"]


async def numbers(seen: list[str]) -> AsyncGenerator[int, None]:
    try:
        for number in range(3):
            await BlockingWaits().sleep(0)
            yield number
    finally:
        seen.append("closed")


def test_items_of_a_flow_come_one_by_one_and_the_rest_is_closed() -> None:
    seen: list[str] = []
    assert list(iterate(numbers(seen))) == [0, 1, 2]
    assert seen == ["closed"]
    items = iterate(numbers(seen))
    assert next(items) == 0
    del items
    assert seen == ["closed", "closed"]


class Flow:
    async def halve(self, number: int, *, twice: bool = False) -> int:
        """Half of a number."""
        if number % 2:
            raise ValueError(number)
        return number // (4 if twice else 2)


class Face:
    _flow = Flow()
    halve = blocking(Flow.halve)


def test_a_blocking_method_is_the_flows_with_its_docstring_and_errors() -> None:
    assert Face().halve(8, twice=True) == 2
    assert Face.halve.__doc__ == "Half of a number."
    assert Face.halve.__name__ == "halve"
    with pytest.raises(ValueError, match="7"):
        Face().halve(7)
