# SPDX-License-Identifier: Apache-2.0
"""Requests over a Unix socket, each on a new connection, as flows of both clients."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, closing
from typing import Any, Protocol

from sandboxd.client.http import AnswerParser, Ended, ProtocolError
from sandboxd.client.refusals import (
    ConnectionLost,
    DaemonUnreachable,
    closed,
    refusal,
    silent,
    unreadable,
)
from sandboxd.client.request import KEY_HEADER, Attempts, Request
from sandboxd.errors import InvalidRequest, QuotaExceeded, SandboxdError

BUSY_SECONDS = 10.0
BUSY_PAUSE_SECONDS = 0.02
CHUNK_BYTES = 256 << 10
# An error's body is small; bytes beyond this limit are not read.
MAX_REFUSAL_BYTES = 1 << 20


class Waits(Protocol):
    """The waits of a flow: BlockingWaits (blocking.py) or LoopWaits (aio.py).

    seconds: None = for ever; a longer wait raises TimeoutError.
    """

    def limited(self, seconds: float, /) -> AbstractAsyncContextManager[object]:
        """Return a block that ends with TimeoutError after `seconds`, if waits can be cancelled."""

    async def sleep(self, seconds: float, /) -> None:
        """Return after `seconds`."""

    async def send(self, connection: socket.socket, data: bytes, seconds: float | None, /) -> None:
        """Hand all of `data` to the kernel. Raises OSError."""

    async def readable(
        self, connections: Collection[socket.socket], seconds: float | None, /
    ) -> Collection[socket.socket]:
        """Return the connections that have bytes to read or have ended: at least one."""

    def start(self, work: Coroutine[Any, Any, None], /) -> Background:
        """Begin a flow in the background."""

    async def called(self, returned: object, /) -> None:
        """Await the value returned by a callback of the client's user, if an awaitable."""

    def made(self, pieces: Iterator[bytes], /) -> AbstractAsyncContextManager[Iterator[bytes]]:
        """Give pieces made by slow work on files, outside the event loop's thread."""

    async def taken(
        self, pieces: AsyncGenerator[bytes, None], work: Callable[[Iterator[bytes]], None], /
    ) -> None:
        """Have slow work on files take the pieces, outside the event loop's thread."""


class Background(Protocol):
    """A flow in the background."""

    def cancel(self) -> object:
        """Cancel the flow, where flows can be cancelled."""

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for the end of the flow. Raises the flow's exception."""


class Exchange:
    """One request and answer on a connection."""

    def __init__(self, waits: Waits, connection: socket.socket, request: Request) -> None:
        self.connection = connection
        self._waits = waits
        self._request = request
        self._parser = AnswerParser(has_no_body=request.method == "HEAD")

    def close(self) -> None:
        """Close the connection at once; unsent bytes are dropped."""
        self.connection.close()

    @property
    def is_complete(self) -> bool:
        """Whether the whole body was received."""
        return self._parser.is_complete

    def take(self) -> bytes:
        """Return the body bytes received since the last call."""
        return self._parser.take()

    async def begin(self) -> None:
        """Send the request, read the answer's head. Raises the refusal, ConnectionLost."""
        await self._send()
        while not self._parser.has_head:
            await self.receive()
        if not 200 <= self._parser.status < 300:
            body = await self._refused_body()
            raise refusal(self._parser.status, body, self._parser.headers.get("retry-after"))

    async def receive(self) -> None:
        """Wait for more bytes of the answer. Raises ConnectionLost."""
        seconds = self._request.timeout_seconds
        try:
            await self._waits.readable([self.connection], seconds)
            self._parser.feed(self.connection.recv(CHUNK_BYTES))
        except TimeoutError as exc:
            raise silent(seconds) from exc
        except (OSError, Ended) as exc:
            raise closed() from exc
        except ProtocolError as exc:
            raise unreadable(exc) from exc

    async def piece(self) -> bytes:
        """Return the next piece of the body; b"" at the end. Raises ConnectionLost."""
        while not (data := self.take()) and not self.is_complete:
            await self.receive()
        return data

    async def _send(self) -> None:
        seconds = self._request.timeout_seconds
        try:
            for part in self._request.parts():
                await self._waits.send(self.connection, part, seconds)
        except TimeoutError as exc:
            raise silent(seconds) from exc
        except OSError:
            # A daemon may refuse before reading all; the answer then says why.
            return

    async def _refused_body(self) -> bytes:
        body = bytearray()
        while len(body) <= MAX_REFUSAL_BYTES and (piece := await self.piece()):
            body += piece
        return bytes(body)


class Transport:
    """Requests to the daemon on a socket."""

    def __init__(self, path: str, waits: Waits) -> None:
        self.path = path
        self.waits = waits

    async def reach(self) -> None:
        """Connect without a request. Raises DaemonUnreachable if no daemon listens."""
        (await self._connect()).close()

    async def open(self, request: Request) -> Exchange:
        """Send the request and return the exchange, to be closed by the caller.

        Raises the daemon's refusal, DaemonUnreachable, ConnectionLost. A request that is idempotent
        or has a key is sent again when the connection broke before an answer.
        """
        attempts = Attempts(request)
        while True:
            try:
                return await self._exchange(request)
            except (ConnectionLost, DaemonUnreachable) as exc:
                pause = attempts.pause_seconds(exc)
                if request.has_key and not await self._knows_keys():
                    raise
            except (QuotaExceeded, InvalidRequest) as exc:
                request.relax(exc)
                continue
            # No event says when the daemon is back.
            await self.waits.sleep(pause)

    async def ask(self, request: Request) -> Any:
        """Return the answer's JSON; None for an empty body. Raises as `open` does."""
        return decode(await self.read(request))

    async def read(self, request: Request) -> bytes:
        """Return the answer's body. Raises as `open` does."""
        with closing(await self.open(request)) as answer:
            while not answer.is_complete:
                await answer.receive()
            return answer.take()

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Iterate over the answer's body in pieces, on arrival. Raises as `open` does."""
        with closing(await self.open(request)) as answer:
            while piece := await answer.piece():
                yield piece

    async def _exchange(self, request: Request) -> Exchange:
        exchange = Exchange(self.waits, await self._connect(), request)
        try:
            await exchange.begin()
        except BaseException:
            exchange.close()
            raise
        return exchange

    async def _connect(self) -> socket.socket:
        """Connect; wait while the backlog is full (EAGAIN, unix(7)). Raises DaemonUnreachable."""
        give_up = time.monotonic() + BUSY_SECONDS
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # connect(2) on a Unix socket never returns EINPROGRESS.
            connection.setblocking(False)
            try:
                connection.connect(self.path)
            except OSError as exc:
                connection.close()
                if exc.errno != errno.EAGAIN or time.monotonic() > give_up:
                    raise DaemonUnreachable(self.path, exc.errno or errno.ENAMETOOLONG) from exc
                # The kernel has no event for room in a backlog.
                await self.waits.sleep(BUSY_PAUSE_SECONDS)
            else:
                return connection

    async def _knows_keys(self) -> bool:
        """Return whether the daemon keeps the first answer to an Idempotency-Key."""
        try:
            return KEY_HEADER.encode() in await self.read(Request("GET", "/openapi.json"))
        except SandboxdError:
            return False


def decode(body: bytes) -> Any:
    """Return an answer's JSON; None for an empty body. Raises ConnectionLost."""
    try:
        return json.loads(body) if body else None
    except ValueError as exc:
        raise unreadable("not JSON") from exc
