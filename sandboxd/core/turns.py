# SPDX-License-Identifier: Apache-2.0
"""Distributes a few slots among many waiters in turn: by owner, then by part of the owner.

No demand of an owner delays the rest: an owner holds at most twice the free slots, and a part (a
sandbox) at most the free slots, so that a slot stays free for the next comer; freed slots go round.
Work in a slot should be short.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple


class Turn(NamedTuple):
    """The asking party. owner: a uid. part: a sandbox's id."""

    owner: int
    part: str


@dataclass(eq=False, slots=True)
class _Part:
    held: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


@dataclass(eq=False, slots=True)
class _Owner:
    held: int = 0
    parts: dict[str, _Part] = field(default_factory=dict)


class Turns:
    """A fixed number of slots, for one event loop."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        # In the order of turns: the last served owner is last.
        self._owners: dict[int, _Owner] = {}

    @asynccontextmanager
    async def one(self, turn: Turn) -> AsyncIterator[None]:
        """Hold a slot while entered, after the turn; a waiter cancelled before has held none."""
        owner = self._owners.setdefault(turn.owner, _Owner())
        part = owner.parts.setdefault(turn.part, _Part())
        granted = asyncio.get_running_loop().create_future()
        part.waiting.append(granted)
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.cancelled():
                with suppress(ValueError):
                    part.waiting.remove(granted)
            else:
                self._free += 1
                owner.held -= 1
                part.held -= 1
            self._tidy(turn)
            self._grant()

    def _grant(self) -> None:
        while self._free:
            found = next(self._allowed(), None)
            if found is None:
                return
            turn, owner, part = found
            granted = part.waiting.popleft()
            # The waiter's task was cancelled, but has not run since.
            if granted.cancelled():
                continue
            granted.set_result(None)
            self._free -= 1
            owner.held += 1
            part.held += 1
            owner.parts[turn.part] = owner.parts.pop(turn.part)
            self._owners[turn.owner] = self._owners.pop(turn.owner)

    def _allowed(self) -> Iterator[tuple[Turn, _Owner, _Part]]:
        for uid, owner in self._owners.items():
            if owner.held >= 2 * self._free:
                continue
            for name, part in owner.parts.items():
                if part.waiting and part.held < self._free:
                    yield Turn(uid, name), owner, part

    def _tidy(self, turn: Turn) -> None:
        # Between the cancelling and the run of a task, a further release may have removed the
        # entry.
        owner = self._owners.get(turn.owner, _Owner())
        part = owner.parts.get(turn.part, _Part())
        if not part.held and not part.waiting:
            owner.parts.pop(turn.part, None)
        if not owner.parts:
            self._owners.pop(turn.owner, None)
