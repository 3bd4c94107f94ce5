# SPDX-License-Identifier: Apache-2.0
"""How flows wait in asyncio's event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager


class LoopWaits:
    """Each wait suspends the task. See Waits."""

    def __init__(self) -> None:
        """Raises RuntimeError outside asyncio."""
        try:
            asyncio.get_running_loop()
        except RuntimeError as exc:
            raise RuntimeError(
                "cannot use AsyncSandbox without asyncio's event loop: under trio call the methods "
                "of Sandbox by trio.to_thread.run_sync"
            ) from exc

    def limited(self, seconds: float, /) -> AbstractAsyncContextManager[object]:
        """See Waits."""
        return asyncio.timeout(seconds)

    async def sleep(self, seconds: float, /) -> None:
        """See Waits."""
        await asyncio.sleep(seconds)

    async def send(self, connection: socket.socket, data: bytes, seconds: float | None, /) -> None:
        """See Waits."""
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_sendall(connection, data)

    async def readable(
        self, connections: Collection[socket.socket], seconds: float | None, /
    ) -> Collection[socket.socket]:
        """See Waits. Gives way to other tasks even where something is readable already."""
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
