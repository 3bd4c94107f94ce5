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
# An error's body is small; the rest of a longer body is not waited for.
MAX_REFUSAL_BYTES = 1 << 20


class Waits(Protocol):
    """All that a flow waits by: BlockingWaits (blocking.py) or LoopWaits (aio.py).

    seconds: None = for ever; a wait that takes longer raises TimeoutError.
    """

    def limited(self, seconds: float, /) -> AbstractAsyncContextManager[object]:
        """A block that ends with TimeoutError after `seconds`, where waits can be broken off."""

    async def sleep(self, seconds: float, /) -> None:
        """Return after `seconds`."""

    async def send(self, connection: socket.socket, data: bytes, seconds: float | None, /) -> None:
        """Hand all of `data` to the kernel. Raises OSError."""

    async def readable(
        self, connections: Collection[socket.socket], seconds: float | None, /
    ) -> Collection[socket.socket]:
        """The connections that have bytes to read or have ended: at least one."""

    def start(self, work: Coroutine[Any, Any, None], /) -> Background:
        """Begin a flow that goes on beside the caller."""

    async def called(self, returned: object, /) -> None:
        """Wait for what a callback of the client's user returned, where that can be waited for."""

    def made(self, pieces: Iterator[bytes], /) -> AbstractAsyncContextManager[Iterator[bytes]]:
        """The pieces that slow work on files makes: in no event loop's thread."""

    async def taken(
        self, pieces: AsyncGenerator[bytes, None], work: Callable[[Iterator[bytes]], None], /
    ) -> None:
        """Have slow work on files take the pieces: in no event loop's thread."""


class Background(Protocol):
    """A flow that goes on beside the caller."""

    def cancel(self) -> object:
        """Break the flow off, where flows can be."""

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for the end; raises what ended the flow."""


class Exchange:
    """A request and the answer; `close` ends the connection."""

    def __init__(self, waits: Waits, connection: socket.socket, request: Request) -> None:
        self.connection = connection
        self._waits = waits
        self._request = request
        self._parser = AnswerParser(has_no_body=request.method == "HEAD")

    def close(self) -> None:
        """End the connection at once: what was not sent yet is no longer wanted."""
        self.connection.close()

    @property
    def is_complete(self) -> bool:
        """Whether all of the body came."""
        return self._parser.is_complete

    def take(self) -> bytes:
        """What came of the body and was not taken yet."""
        return self._parser.take()

    async def begin(self) -> None:
        """Send the request and read the answer's head.

        Raises what the daemon refused with (sandboxd.errors), ConnectionLost.
        """
        await self._send()
        while not self._parser.has_head:
            await self.receive()
        if not 200 <= self._parser.status < 300:
            body = await self._refused_body()
            raise refusal(self._parser.status, body, self._parser.headers.get("retry-after"))

    async def receive(self) -> None:
        """Wait for more of the answer. Raises ConnectionLost."""
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
        """The next piece of the body; b"" at its end. Raises ConnectionLost."""
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
            # A daemon may answer before all was read, and then the answer says why.
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
        """Raises DaemonUnreachable where no daemon listens; sends no request."""
        (await self._connect()).close()

    async def open(self, request: Request) -> Exchange:
        """Send the request; the caller closes the answer.

        Raises what the daemon refused with, DaemonUnreachable, ConnectionLost. What is idempotent
        is sent again when the connection broke before there was an answer.
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
            # No event tells that the daemon is back.
            await self.waits.sleep(pause)

    async def ask(self, request: Request) -> Any:
        """The answer's JSON; None for an empty body. Raises as `open` does."""
        return decode(await self.read(request))

    async def read(self, request: Request) -> bytes:
        """The answer's body. Raises as `open` does."""
        with closing(await self.open(request)) as answer:
            while not answer.is_complete:
                await answer.receive()
            return answer.take()

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        """The answer's body in pieces, on arrival. Raises as `open` does."""
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
        """A connection to the daemon; a full backlog (EAGAIN, unix(7)) is waited for.

        Raises DaemonUnreachable.
        """
        give_up = time.monotonic() + BUSY_SECONDS
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # A Unix socket is never in the middle of connecting.
            connection.setblocking(False)
            try:
                connection.connect(self.path)
            except OSError as exc:
                connection.close()
                if exc.errno != errno.EAGAIN or time.monotonic() > give_up:
                    raise DaemonUnreachable(self.path, exc.errno or errno.ENAMETOOLONG) from exc
                # The kernel does not tell when there is room in a backlog.
                await self.waits.sleep(BUSY_PAUSE_SECONDS)
            else:
                return connection

    async def _knows_keys(self) -> bool:
        """Whether the daemon keeps the first answer to an Idempotency-Key."""
        try:
            return KEY_HEADER.encode() in await self.read(Request("GET", "/openapi.json"))
        except SandboxdError:
            return False


def decode(body: bytes) -> Any:
    """An answer's JSON; None for an empty body. Raises ConnectionLost."""
    try:
        return json.loads(body) if body else None
    except ValueError as exc:
        raise unreadable("not JSON") from exc
