# SPDX-License-Identifier: Apache-2.0
"""Flows without an event loop, for the blocking client.

A flow is a coroutine that waits only by Waits (transport.py). With BlockingWaits each wait blocks
the thread and never suspends the coroutine, so a single `send` runs a flow to the end.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from sandboxd.client.transport import Waits

P = ParamSpec("P")
T = TypeVar("T")


def finish(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow with BlockingWaits and return the result."""
    try:
        flow.send(None)
    except StopIteration as exc:
        result: T = exc.value
        return result
    flow.close()
    raise RuntimeError("a blocking flow waited for an event loop")


def iterate(flow: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterate over a flow with BlockingWaits; closing the iterator closes the flow."""
    try:
        while True:
            try:
                item = finish(flow.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        finish(flow.aclose())


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that runs `method` of `self._flow`, with name, signature and docstring."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finish(method(self._flow, *args, **kwargs))

    return call


def finished(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a function that runs the flow of `function`, with name, signature and docstring."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return finish(function(*args, **kwargs))

    return call


class Maker(Generic[P]):
    """A class method that makes an object of the class from the flow object that `make` gives."""

    def __init__(self, make: Callable[P, Coroutine[Any, Any, Any]]) -> None:
        self._make = make

    def __get__(self, _instance: object, owner: Callable[[Any], T]) -> Callable[P, T]:
        @wraps(self._make)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return owner(finish(self._make(*args, **kwargs)))

        return call


class BlockingWaits(Waits):
    """Waits that block the calling thread."""

    def limited(self, _seconds: float, /) -> AbstractAsyncContextManager[object]:
        """Set no limit: a thread cannot be cancelled."""
        return nullcontext()

    async def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop is there to be held up

    async def send(self, connection: socket.socket, data: bytes, seconds: float | None, /) -> None:
        connection.settimeout(seconds)
        connection.sendall(data)

    async def readable(
        self, connections: Collection[socket.socket], seconds: float | None, /
    ) -> Collection[socket.socket]:
        poll = select.poll()
        for connection in connections:
            poll.register(connection, select.POLLIN)
        ready = {number for number, _ in poll.poll(None if seconds is None else seconds * 1000)}
        if not ready:
            raise TimeoutError
        return [one for one in connections if one.fileno() in ready]

    def start(self, work: Coroutine[Any, Any, None], /) -> _Beside:
        return _Beside(work)

    async def called(self, returned: object, /) -> None:
        """Return at once: a plain callback is done when the call returns."""

    def made(self, pieces: Iterator[bytes], /) -> AbstractAsyncContextManager[Iterator[bytes]]:
        return nullcontext(pieces)

    async def taken(
        self, pieces: AsyncGenerator[bytes, None], work: Callable[[Iterator[bytes]], None], /
    ) -> None:
        work(iterate(pieces))


class _Beside:
    """A flow in a daemon thread, blocked while a program does not read its input."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        # Most commands of sandboxctl start no thread.
        import threading

        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), name="flow", daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            finish(work)
        except BaseException as exc:
            self._error = exc

    def cancel(self) -> None:
        """Do nothing: a thread cannot be cancelled, and ends with the execution."""

    def __await__(self) -> Generator[Any, None, None]:
        self._thread.join()
        if self._error is not None:
            raise self._error
        yield from ()
