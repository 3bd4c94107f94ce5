# SPDX-License-Identifier: Apache-2.0
"""Each caller's share of the daemon: turns of the loop, and bytes that are kept for its requests.

A caller that asks for more waits for itself alone. Nothing here is about what a caller may have in
the end, only about what it may have at once.
"""

from __future__ import annotations

import asyncio
from collections import deque

# Of bodies, and of answers until they are taken, of one caller.
BYTES_OF_CALLER = 32 << 20
# Less is not counted: the number of connections bounds it.
SMALL_BYTES = 64 << 10


class Shares:
    """The shares of all callers, by uid."""

    def __init__(self) -> None:
        self._waiting_turns: dict[int, deque[asyncio.Future[None]]] = {}
        self._had_turn: set[int] = set()
        self._is_round_due = False
        self._held: dict[int, int] = {}
        self._waiting_bytes: dict[int, deque[tuple[int, asyncio.Future[None]]]] = {}

    async def turn(self, uid: int) -> None:
        """Wait for a turn: in each round of the loop every caller has one."""
        if uid not in self._had_turn and uid not in self._waiting_turns:
            self._had_turn.add(uid)
            self._call_round()
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_turns.setdefault(uid, deque()).append(future)
        self._call_round()
        await future

    def _call_round(self) -> None:
        if not self._is_round_due:
            self._is_round_due = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._is_round_due = False
        self._had_turn.clear()
        for uid, queue in list(self._waiting_turns.items()):
            while queue:
                future = queue.popleft()
                if not future.done():
                    future.set_result(None)
                    self._had_turn.add(uid)
                    break
            if not queue:
                del self._waiting_turns[uid]
        if self._had_turn:
            self._call_round()

    async def take(self, uid: int, size: int) -> int:
        """Wait for room for so many bytes; returns what has to be given back.

        One that is larger than all a caller may have is as large as that.
        """
        size = min(size, BYTES_OF_CALLER)
        queue = self._waiting_bytes.setdefault(uid, deque())
        if queue or self._held.get(uid, 0) + size > BYTES_OF_CALLER:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            queue.append((size, future))
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self.give_back(uid, size)
                else:
                    self._let_in(uid)
                raise
            return size
        self._held[uid] = self._held.get(uid, 0) + size
        self._let_in(uid)
        return size

    def give_back(self, uid: int, size: int) -> None:
        """Make room."""
        self._held[uid] = self._held.get(uid, 0) - size
        self._let_in(uid)

    def _let_in(self, uid: int) -> None:
        queue = self._waiting_bytes.get(uid)
        while queue:
            size, future = queue[0]
            if not future.done():
                if self._held.get(uid, 0) + size > BYTES_OF_CALLER:
                    break
                self._held[uid] = self._held.get(uid, 0) + size
                future.set_result(None)
            queue.popleft()
        if not queue:
            self._waiting_bytes.pop(uid, None)
        if not self._held.get(uid):
            self._held.pop(uid, None)


class Share:
    """What one request has of its caller's."""

    def __init__(self, shares: Shares, uid: int) -> None:
        self._shares = shares
        self._uid = uid
        self._size = 0

    async def turn(self) -> None:
        """Wait before each piece of work that takes the loop a part of a millisecond."""
        await self._shares.turn(self._uid)

    async def hold(self, size: int) -> None:
        """Keep at most so many bytes from now on, in place of those before; waits for room."""
        self.release()
        if size > SMALL_BYTES:
            self._size = await self._shares.take(self._uid, size)

    def shrink(self, size: int) -> None:
        """It turned out to be less."""
        if size < self._size:
            self._shares.give_back(self._uid, self._size - size)
            self._size = size

    def release(self) -> None:
        """Keep nothing any more."""
        if self._size:
            self._shares.give_back(self._uid, self._size)
            self._size = 0
