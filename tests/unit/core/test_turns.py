# SPDX-License-Identifier: Apache-2.0
"""Slots go round: nobody's turn is later for how much another one asks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from sandboxd.core.turns import Turn, Turns


class World:
    """Work that holds a slot until it is told to end, and the order in which it began."""

    def __init__(self, slots: int) -> None:
        self.turns = Turns(slots)
        self.began: list[Turn] = []
        self.ends: dict[asyncio.Task[None], asyncio.Event] = {}
        self.holding: list[asyncio.Task[None]] = []

    def ask(self, owner: int, part: str = "a") -> asyncio.Task[None]:
        end = asyncio.Event()
        task = asyncio.create_task(self._hold(Turn(owner, part), end))
        self.ends[task] = end
        return task

    async def _hold(self, turn: Turn, end: asyncio.Event) -> None:
        task = asyncio.current_task()
        assert task is not None
        async with self.turns.one(turn):
            self.began.append(turn)
            self.holding.append(task)
            await end.wait()
            self.holding.remove(task)

    async def end_oldest(self) -> None:
        task = self.holding[0]
        self.ends[task].set()
        await task
        await settle()

    async def end_all(self) -> None:
        while self.holding:
            await self.end_oldest()


async def settle() -> None:
    """Let all tasks go as far as they can: none of these waits for anything outside."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_one_part_leaves_room_and_so_does_one_owner() -> None:
    async def work() -> None:
        world = World(8)
        for _ in range(20):
            world.ask(1)
        await settle()
        assert len(world.began) == 4
        for number in range(20):
            world.ask(1, f"b{number}")
        await settle()
        assert len(world.began) == 6
        # The next owners do not wait for any of them.
        world.ask(2)
        await settle()
        world.ask(3)
        await settle()
        assert [turn.owner for turn in world.began[6:]] == [2, 3]
        await world.end_all()
        assert len(world.began) == 42

    run(work())


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_what_is_free_goes_round(slots: int) -> None:
    async def work() -> None:
        world = World(slots)
        for _ in range(30):
            world.ask(1)
        await settle()
        for owner in (2, 3):
            world.ask(owner)
            world.ask(owner)
        await settle()
        held = len(world.began)
        for _ in range(6):
            await world.end_oldest()
        # Each of the others' four had its turn within the six that came free.
        others = [turn.owner for turn in world.began if turn.owner != 1]
        assert sorted(others) == [2, 2, 3, 3], world.began
        assert held <= slots
        await world.end_all()
        assert len(world.began) == 34

    run(work())


def test_parts_of_one_owner_go_round() -> None:
    async def work() -> None:
        world = World(1)
        for _ in range(10):
            world.ask(1, "busy")
        await settle()
        world.ask(1, "calm")
        await settle()
        await world.end_oldest()
        await world.end_oldest()
        assert Turn(1, "calm") in world.began[:3]
        await world.end_all()

    run(work())


def test_who_is_cancelled_holds_nothing_and_is_forgotten() -> None:
    async def work() -> None:
        world = World(1)
        first = world.ask(1)
        waiting = [world.ask(2) for _ in range(3)]
        await settle()
        for task in waiting[:2]:
            task.cancel()
        await settle()
        first.cancel()
        await settle()
        assert world.began == [Turn(1, "a"), Turn(2, "a")]
        waiting[2].cancel()
        await settle()
        # One that is cancelled in the moment it is given a slot gives it back.
        holder = world.ask(1)
        await settle()
        late = world.ask(2)
        await settle()
        world.ends[holder].set()
        await holder
        late.cancel()
        await settle()
        last = world.ask(3)
        await settle()
        assert last in world.holding
        world.ends[last].set()
        await settle()
        assert not world.turns._owners

    run(work())


def test_a_slot_comes_free_as_who_waits_is_cancelled() -> None:
    async def work() -> None:
        world = World(1)
        holder = world.ask(1)
        late, last = world.ask(2), world.ask(3)
        await settle()
        late.cancel()
        # The holder's end runs before the cancelled task does.
        world.ends[holder].set()
        await settle()
        assert last in world.holding
        await world.end_all()
        assert not world.turns._owners

    run(work())


def test_one_whose_task_is_cancelled_while_all_others_of_it_end_has_never_been() -> None:
    async def go() -> None:
        world = World(3)
        holding = [world.ask(1, "a"), world.ask(1, "a")]
        await settle()
        waits = world.ask(1, "a")
        await settle()
        assert len(world.began) == 2
        for task in holding:
            world.ends[task].set()
        # Their ends come first, in the same round.
        waits.cancel()
        results = await asyncio.gather(*holding, waits, return_exceptions=True)
        assert [type(result) for result in results[:2]] == [type(None)] * 2
        assert isinstance(results[2], asyncio.CancelledError)
        assert not world.turns._owners

    run(go())
