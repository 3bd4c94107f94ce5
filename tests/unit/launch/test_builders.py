# SPDX-License-Identifier: Apache-2.0
"""Removals take turns, each a part of a tree: no owner's trees keep another one's waiting."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from sandboxd.core.turns import Turn
from sandboxd.errors import InternalError
from sandboxd.launch.builders import Builders
from sandboxd.launch.spawner import SpawnerClient
from sandboxd.protocol.building import Answer, Failed, Failure, Order, Removed, RemoveTree


class Removals(Builders):
    """Builders whose orders end when they are told to; each tree takes so many."""

    def __init__(self, orders_of: dict[str, int]) -> None:
        super().__init__(cast(SpawnerClient, None))
        self.orders_of = orders_of
        self.at_work: list[tuple[str, asyncio.Event]] = []
        self.done: list[str] = []

    async def _ask_once(self, order: Order, seconds: float | None) -> Answer:
        assert isinstance(order, RemoveTree)
        assert order.most > 10_000
        path, end = order.path, asyncio.Event()
        self.at_work.append((path, end))
        await end.wait()
        self.done.append(path)
        if path == "broken":
            return Failed(Failure.OTHER, "it is read-only")
        self.orders_of[path] -= 1
        return Removed(self.orders_of[path] == 0)

    async def end_oldest(self) -> None:
        """One order ends, and whoever is next begins."""
        _, end = self.at_work.pop(0)
        end.set()
        for _ in range(20):
            await asyncio.sleep(0)


async def test_a_small_tree_does_not_wait_for_large_ones() -> None:
    large = {f"large {number}": 100 for number in range(6)}
    builders = Removals({**large, "small": 1, "medium": 2})
    hostile = [asyncio.create_task(builders.remove_tree(path, Turn(1, path))) for path in large]
    await asyncio.sleep(0)
    begun = len(builders.at_work)
    assert begun == 3
    small = asyncio.create_task(builders.remove_tree("small", Turn(2, "b")))
    await asyncio.sleep(0)
    # At once: one place is left for whoever comes next.
    assert builders.at_work[-1][0] == "small"
    medium = asyncio.create_task(builders.remove_tree("medium", Turn(3, "c")))
    turns = 0
    while not (small.done() and medium.done()):
        await builders.end_oldest()
        turns += 1
        assert turns < 12
    for task in hostile:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)


async def test_one_that_fails_is_not_tried_for_ever() -> None:
    builders = Removals({})
    task = asyncio.create_task(builders.remove_tree("broken", Turn(1, "a")))
    await asyncio.sleep(0)
    await builders.end_oldest()
    with pytest.raises(InternalError, match="it is read-only"):
        await task
    assert builders.done == ["broken"]
