# SPDX-License-Identifier: Apache-2.0
"""Waits of the asyncio client: each one suspends a task of the event loop."""

from __future__ import annotations

import asyncio
import inspect
import socket
import tempfile
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
)
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

from sandboxd.client import file_routes
from sandboxd.client.transport import Waits


class LoopWaits(Waits):
    """Waits that suspend the calling task."""

    def __init__(self) -> None:
        """Raises RuntimeError outside asyncio's event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError as exc:
            raise RuntimeError(
                "cannot use AsyncSandbox without asyncio's event loop: under trio call the methods "
                "of Sandbox by trio.to_thread.run_sync"
            ) from exc

    def limited(self, seconds: float, /) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)

    async def sleep(self, seconds: float, /) -> None:
        await asyncio.sleep(seconds)

    async def send(self, connection: socket.socket, data: bytes, seconds: float | None, /) -> None:
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_sendall(connection, data)

    async def readable(
        self, connections: Collection[socket.socket], seconds: float | None, /
    ) -> Collection[socket.socket]:
        """Return the readable connections, always after at least one turn of the event loop."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        ready: set[socket.socket] = set()

        def tell(connection: socket.socket) -> None:
            ready.add(connection)
            told.set()

        for connection in connections:
            loop.add_reader(connection, tell, connection)
        try:
            async with asyncio.timeout(seconds):
                await told.wait()
        finally:
            for connection in connections:
                loop.remove_reader(connection)
        return ready

    def start(self, work: Coroutine[Any, Any, None], /) -> asyncio.Task[None]:
        return asyncio.create_task(work)

    async def called(self, returned: object, /) -> None:
        if inspect.isawaitable(returned):
            await returned

    @asynccontextmanager
    async def made(self, pieces: Iterator[bytes], /) -> AsyncIterator[Iterator[bytes]]:
        """Spool all pieces into an unlinked temporary file, then give the pieces from that file."""
        with tempfile.TemporaryFile() as spool:
            await asyncio.to_thread(spool.writelines, pieces)
            spool.seek(0)
            yield file_routes.pieces(spool)

    async def taken(
        self, pieces: AsyncGenerator[bytes, None], work: Callable[[Iterator[bytes]], None], /
    ) -> None:
        """Spool all pieces into an unlinked temporary file, then run `work` in a thread."""
        with tempfile.TemporaryFile() as spool:
            async with aclosing(pieces):
                async for piece in pieces:
                    spool.write(piece)
            spool.seek(0)
            await asyncio.to_thread(work, file_routes.pieces(spool))
