# SPDX-License-Identifier: Apache-2.0
"""What a handler may wait for: work that outlives its client, and waits that end with it.

A client that goes away cancels its handler. What changes the world runs in a task of the server's
own and goes on; what only waits is cancelled, and ends when the server stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sandboxd.api.streams import Streams
from sandboxd.errors import Draining, SandboxdError

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Work:
    """The server's tasks and waits. `tasks` is entered and left by the server."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()
        self._waits: set[asyncio.Timeout] = set()
        self._streams = Streams()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the server stops: what still waits ends without its answer."""
        return self._is_closed

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end, even when the caller of this is cancelled meanwhile."""
        if self._is_closed:
            work.close()
            raise _draining()
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = self._tasks.create_task(_settle(work, result))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await result

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """A wait without side effects. Raises Draining when the server stops meanwhile."""
        if self._is_closed:
            raise _draining()
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._waits.add(scope)
                yield
        except TimeoutError as exc:
            if scope.expired():
                raise _draining() from exc
            raise
        finally:
            self._waits.discard(scope)

    @asynccontextmanager
    async def streaming(self, uid: int, execution_id: str) -> AsyncIterator[None]:
        """A wait that may last as long as an execution: one of a bounded number of streams.

        Raises QuotaExceeded, and Draining when the server stops meanwhile.
        """
        with self._streams.one(uid, execution_id):
            async with self.waiting():
                yield

    async def close(self, *, grace_seconds: float) -> None:
        """End all waits now, and give the rest `grace_seconds`."""
        self._is_closed = True
        now = asyncio.get_running_loop().time()
        for scope in self._waits:
            scope.reschedule(now)
        if self._running:
            _done, late = await asyncio.wait(self._running, timeout=grace_seconds)
            for task in late:
                task.cancel()


async def _settle(work: Coroutine[Any, Any, T], result: asyncio.Future[T]) -> None:
    """Hand the result of `work` over; nobody may be there to take it."""
    try:
        value = await work
    except asyncio.CancelledError:
        if not result.done():
            result.set_exception(_draining())
        raise
    except SandboxdError as exc:
        if result.done():
            logger.warning("after its client had gone away: %s", exc)
        else:
            result.set_exception(exc)
    except Exception as exc:
        if result.done():
            logger.exception("bug, after its client had gone away")
        else:
            result.set_exception(exc)
    else:
        if not result.done():
            result.set_result(value)


def _draining() -> Draining:
    return Draining(
        "cannot wait any longer: sandboxd is stopping",
        hint="ask again; what was running goes on or is listed as ended",
    )
