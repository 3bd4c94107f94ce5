# SPDX-License-Identifier: Apache-2.0
"""The same as tail.py, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from sandboxd.client.aio_calls import AsyncClient
from sandboxd.client.aio_transport import Exchange
from sandboxd.client.calls import RESTART_SECONDS, RETRY_SECONDS
from sandboxd.client.refusals import ConnectionLost
from sandboxd.client.tail import AWAY, STREAMS, Place


async def follow(
    client: AsyncClient, ref: str, execution_id: str
) -> AsyncGenerator[tuple[str, bytes], None]:
    """Pieces of both streams as they come, to the end of the execution.

    Raises ConnectionLost when the daemon stays away for RESTART_SECONDS.
    """
    readers = [_Reader(client, Place(ref, execution_id, stream)) for stream in STREAMS]
    waiting = {asyncio.ensure_future(reader.read()): reader for reader in readers}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                reader = waiting.pop(task)
                if data := task.result():
                    waiting[asyncio.ensure_future(reader.read())] = reader
                    yield reader.place.stream, data
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for reader in readers:
            reader.close()


class _Reader:
    """One stream."""

    def __init__(self, client: AsyncClient, place: Place) -> None:
        self.place = place
        self._client = client
        self._answer: Exchange | None = None

    async def read(self) -> bytes:
        """The next piece; b"" at the end."""
        while True:
            if self._answer is None:
                self._answer = await self._open()
            data = self._answer.take()
            if data or self._answer.is_complete:
                self.place.offset += len(data)
                return data
            try:
                await self._answer.receive()
            except ConnectionLost:
                self.close()

    def close(self) -> None:
        """Let its connection go."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    async def _open(self) -> Exchange:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + RESTART_SECONDS
        while True:
            try:
                return await self._client.transport.open(self.place.request())
            except AWAY as exc:
                if loop.time() > give_up:
                    raise self.place.given_up(exc) from exc
            # A daemon that is not there yet tells nobody when it is.
            await asyncio.sleep(RETRY_SECONDS)
