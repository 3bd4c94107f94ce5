# SPDX-License-Identifier: Apache-2.0
"""Requests over a Unix socket, one connection for each: the asyncio half."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Self

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
from sandboxd.client.transport import (
    BUSY_PAUSE_SECONDS,
    BUSY_SECONDS,
    CHUNK_BYTES,
    MAX_REFUSAL_BYTES,
    decode,
)
from sandboxd.errors import InvalidRequest, QuotaExceeded, SandboxdError


async def connect(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the daemon. Raises DaemonUnreachable, and RuntimeError outside asyncio."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError as exc:
        raise RuntimeError(
            "cannot use AsyncSandbox without asyncio's event loop: under trio call the methods of "
            "Sandbox by trio.to_thread.run_sync"
        ) from exc
    give_up = loop.time() + BUSY_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            # Not by asyncio, which takes the EAGAIN of a full backlog (unix(7)) for a connection
            # in progress. A Unix socket never is in progress.
            connection.connect(path)
        except OSError as exc:
            connection.close()
            if exc.errno != errno.EAGAIN or asyncio.get_running_loop().time() > give_up:
                raise DaemonUnreachable(path, exc.errno or errno.ENAMETOOLONG) from exc
            # The kernel tells nobody when there is room in a backlog.
            await asyncio.sleep(BUSY_PAUSE_SECONDS)
        else:
            return await asyncio.open_unix_connection(sock=connection)


class Exchange:
    """One request and its answer: `open`, read, `close`."""

    def __init__(self, path: str, request: Request) -> None:
        self._path = path
        self._request = request
        self._parser = AnswerParser(has_no_body=request.method == "HEAD")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> Self:
        """Send the request and read the answer's head.

        Raises what the daemon refused with (sandboxd.errors), DaemonUnreachable, ConnectionLost.
        """
        self._streams = await connect(self._path)
        try:
            await self._send(self._streams[1])
            while not self._parser.has_head:
                await self.receive()
            if not 200 <= self._parser.status < 300:
                raise refusal(
                    self._parser.status,
                    await self._refused_body(),
                    self.headers.get("retry-after"),
                )
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End the connection at once: what was not sent yet is no longer wanted."""
        if self._streams is not None:
            self._streams[1].transport.abort()

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers, their names in lower case."""
        return self._parser.headers

    @property
    def is_complete(self) -> bool:
        """Whether all of the body came."""
        return self._parser.is_complete

    def take(self) -> bytes:
        """What came of the body and was not taken yet."""
        return self._parser.take()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises ConnectionLost."""
        while True:
            chunk = self._parser.take()
            if chunk:
                yield chunk
            elif self._parser.is_complete:
                return
            else:
                await self.receive()

    async def read(self) -> bytes:
        """The whole body. Raises ConnectionLost."""
        while not self._parser.is_complete:
            await self.receive()
        return self._parser.take()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._request.timeout_seconds):
                for part in self._request.parts():
                    writer.write(part)
                    await writer.drain()
        except TimeoutError as exc:
            raise silent(self._request.timeout_seconds) from exc
        except OSError:
            # It may have answered before it had read all, and then the answer says why.
            return

    async def receive(self) -> None:
        """Wait for more of the body. Raises ConnectionLost."""
        assert self._streams is not None
        try:
            async with asyncio.timeout(self._request.timeout_seconds):
                data = await self._streams[0].read(CHUNK_BYTES)
            self._parser.feed(data)
        except TimeoutError as exc:
            raise silent(self._request.timeout_seconds) from exc
        except (OSError, Ended) as exc:
            raise closed() from exc
        except ProtocolError as exc:
            raise unreadable(exc) from exc

    async def _refused_body(self) -> bytes:
        body = bytearray()
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > MAX_REFUSAL_BYTES:
                    break
        return bytes(body)


class AsyncTransport:
    """Requests to the daemon on one socket."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def open(self, request: Request) -> Exchange:
        """Send it; the caller closes the answer.

        Raises what the daemon refused with, DaemonUnreachable, ConnectionLost. What is idempotent
        is sent again when the connection broke before there was an answer.
        """
        attempts = Attempts(request)
        while True:
            try:
                return await Exchange(self.path, request).open()
            except (ConnectionLost, DaemonUnreachable) as exc:
                pause = attempts.pause_seconds(exc)
                if request.has_key and not await self._knows_keys():
                    raise
            except (QuotaExceeded, InvalidRequest) as exc:
                request.relax(exc)
                continue
            # A daemon that is not there yet tells nobody when it is.
            await asyncio.sleep(pause)

    async def ask(self, request: Request) -> Any:
        """The answer's JSON; None where it has no body. Raises as `open` does."""
        return decode(await self.read(request))

    async def read(self, request: Request) -> bytes:
        """The answer's body. Raises as `open` does."""
        exchange = await self.open(request)
        try:
            return await exchange.read()
        finally:
            exchange.close()

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        """The answer's body as it comes. Raises as `open` does."""
        exchange = await self.open(request)
        try:
            async with aclosing(exchange.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            exchange.close()

    async def _knows_keys(self) -> bool:
        try:
            return KEY_HEADER.encode() in await self.read(Request("GET", "/openapi.json"))
        except SandboxdError:
            return False
