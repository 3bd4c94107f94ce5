# SPDX-License-Identifier: Apache-2.0
"""Work of handlers that outlives the client, and waits that end with the client.

A client that goes away cancels the handler. Work with effects runs in a task of the server and goes
on; a wait without effects is cancelled, and ends when the server stops.
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
    """The server's tasks and waits. The server enters and leaves `tasks`."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()
        self._waits: set[asyncio.Timeout] = set()
        self._streams = Streams()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the server stops: waits then end without an answer."""
        return self._is_closed

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to the end, even when the awaiting handler is cancelled. Raises Draining."""
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
        """Wrap a wait without side effects. Raises Draining when the server stops meanwhile."""
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
        """Wrap a wait as long as an execution, an open stream. Raises QuotaExceeded, Draining."""
        with self._streams.one(uid, execution_id):
            async with self.waiting():
                yield

    async def close(self, *, grace_seconds: float) -> None:
        """End all waits now, and cancel tasks that still run after `grace_seconds`."""
        self._is_closed = True
        now = asyncio.get_running_loop().time()
        for scope in self._waits:
            scope.reschedule(now)
        if self._running:
            _done, late = await asyncio.wait(self._running, timeout=grace_seconds)
            for task in late:
                task.cancel()


async def _settle(work: Coroutine[Any, Any, T], result: asyncio.Future[T]) -> None:
    """Set `result` from `work`, or log an error if the client has gone away."""
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
