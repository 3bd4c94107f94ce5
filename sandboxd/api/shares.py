# SPDX-License-Identifier: Apache-2.0
"""Each caller's share of the daemon: turns of the event loop, and bytes kept for requests.

A caller that asks for more delays no other caller. Shares bound what a caller has at once, not the
total.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

# Of a caller's bodies, and of answers until the client has taken all.
BYTES_OF_CALLER = 32 << 20
# Smaller bodies and answers are not counted: the number of connections bounds the sum.
SMALL_BYTES = 64 << 10
# Memory that running work may keep uncounted: the number of running pieces of work is bounded.
LITTLE_BYTES = 256 << 10
# A longer turn is followed by a rest of _REST_FACTOR times the length, if further callers are
# active: work that cannot be cut into pieces takes a fifth of the loop at most.
LONG_TURN_SECONDS = 0.005
_REST_FACTOR = 4
_ALONE_SECONDS = 1.0


class Shares:
    """The shares of all callers, by uid."""

    def __init__(self) -> None:
        self._waiting_turns: dict[int, deque[asyncio.Future[None]]] = {}
        self._had_turn: set[int] = set()
        self._is_round_due = False
        self._rests_until: dict[int, float] = {}
        self._end_of_rest: asyncio.TimerHandle | None = None
        self._last_turns: dict[int, float] = {}
        self._held: dict[int, int] = {}
        self._waiting_bytes: dict[int, deque[tuple[int, asyncio.Future[None]]]] = {}

    async def turn(self, uid: int) -> None:
        """Wait for a turn: each caller has one turn in each round of the loop."""
        if (granted := self.ask_turn(uid)) is not None:
            await granted

    def ask_turn(self, uid: int) -> asyncio.Future[None] | None:
        """Return None if the caller has the turn, else a future that is done at the turn."""
        loop = asyncio.get_running_loop()
        self._last_turns[uid] = loop.time()
        self._call_round()
        if uid not in self._had_turn | self._waiting_turns.keys() | self._rests_until.keys():
            self._had_turn.add(uid)
            return None
        future: asyncio.Future[None] = loop.create_future()
        self._waiting_turns.setdefault(uid, deque()).append(future)
        return future

    @contextmanager
    def long_turn(self, uid: int) -> Iterator[None]:
        """Time work that may hold up the loop; the caller rests after a long turn."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            yield
        finally:
            took = loop.time() - begun
            if took > LONG_TURN_SECONDS:
                self.rest(uid, _REST_FACTOR * took)

    def rest(self, uid: int, seconds: float) -> None:
        """Give the caller no turn for so many seconds, if further callers are active."""
        now = asyncio.get_running_loop().time()
        if any(one != uid and now - at < _ALONE_SECONDS for one, at in self._last_turns.items()):
            self._rests_until[uid] = max(now, self._rests_until.get(uid, now)) + seconds
            self._call_round()

    def _call_round(self) -> None:
        if not self._is_round_due:
            self._is_round_due = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._is_round_due = False
        self._had_turn.clear()
        for times in (self._rests_until, self._last_turns):
            after = now if times is self._rests_until else now - _ALONE_SECONDS
            for uid in [uid for uid, at in times.items() if at <= after]:
                del times[uid]
        for uid, queue in list(self._waiting_turns.items()):
            if uid in self._rests_until:
                continue
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
        if self._end_of_rest is not None:
            self._end_of_rest.cancel()
            self._end_of_rest = None
        if self._rests_until:
            self._end_of_rest = loop.call_at(min(self._rests_until.values()), self._call_round)

    async def take(self, uid: int, size: int) -> int:
        """Wait for room for `size` bytes, at most BYTES_OF_CALLER; return the bytes taken."""
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
        """Give back bytes taken with `take`."""
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


@dataclass(slots=True)
class _Held:
    """Bytes kept for an answer or body, and the number of requests that share these bytes."""

    size: int
    users: int = 1


class Share:
    """The part of the caller's share that a request has."""

    def __init__(self, shares: Shares, uid: int) -> None:
        self._shares = shares
        self._uid = uid
        self._held: _Held | None = None

    async def turn(self) -> None:
        """Wait for a turn; call before each piece of work of a part of a millisecond."""
        await self._shares.turn(self._uid)

    def long_turn(self) -> AbstractContextManager[None]:
        """Time work that may hold up the loop, see Shares."""
        return self._shares.long_turn(self._uid)

    async def hold(self, size: int) -> None:
        """Hold room for `size` bytes, in place of the room held before; waits for room."""
        self.release()
        if size > SMALL_BYTES:
            self._held = _Held(await self._shares.take(self._uid, size))

    async def hold_more(self, size: int, most: int) -> None:
        """Hold room for `most` bytes once running work has grown from little to `size` bytes."""
        if size > LITTLE_BYTES and self._held is None:
            await self.hold(most)

    def shrink(self, size: int) -> None:
        """Give back all room above `size` bytes."""
        if self._held is not None and size < self._held.size:
            self._shares.give_back(self._uid, self._held.size - size)
            self._held.size = size

    def another(self) -> Share:
        """Return a share of the same caller, for work that may outlive the request."""
        return Share(self._shares, self._uid)

    def take_over(self, other: Share) -> None:
        """Hold the room of `other`, which then holds none, in place of the room held before."""
        self.release()
        self._held, other._held = other._held, None

    def join(self, other: Share) -> None:
        """Hold the room of `other` as well, in place of the room held before.

        The room of both, who have the same caller, counts once until both release.
        """
        self.release()
        self._held = other._held
        if self._held is not None:
            self._held.users += 1

    def release(self) -> None:
        """Give back all room held."""
        held, self._held = self._held, None
        if held is not None:
            held.users -= 1
            if not held.users:
                self._shares.give_back(self._uid, held.size)
