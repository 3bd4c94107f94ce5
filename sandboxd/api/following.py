# SPDX-License-Identifier: Apache-2.0
"""An execution's output as it comes. The spool files are the truth, so nothing is kept here: each
reader takes its own place in them, at its own pace, and loses nothing by being slow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from sandboxd.api.routes import Call
from sandboxd.core.model import Execution, Stream
from sandboxd.engine.engine import Engine
from sandboxd.errors import RangeNotSatisfiable, SandboxdError

logger = logging.getLogger(__name__)
CHUNK_BYTES = 256 << 10
# A client that takes nothing for this long has gone away.
STALLED_SECONDS = 60.0
# How long a quiet stream may say nothing: its reader gets a sign of life, and the spools another
# look, whatever became of the notice of a change.
QUIET_SECONDS = 15.0


class OutputLost(Exception):
    """Raised when output that was there is gone: the record was removed meanwhile."""


class Reader:
    """Reads some streams of one execution, each from an offset on."""

    def __init__(self, engine: Engine, execution: Execution, offsets: Mapping[Stream, int]) -> None:
        self._engine = engine
        self.execution = execution
        self.offsets = dict(offsets)

    async def check(self) -> None:
        """Raises RangeNotSatisfiable when an offset is behind what was printed so far."""
        for stream, offset in self.offsets.items():
            if offset and not await self._read(stream, offset - 1, 1):
                raise RangeNotSatisfiable(
                    f"cannot read {stream} from byte {offset}: it is shorter",
                    details={"offset": offset},
                )

    async def there(self, *, chunk_bytes: int) -> AsyncGenerator[tuple[Stream, bytes], None]:
        """What is there now, in chunks."""
        found = True
        while found:
            found = False
            for stream, offset in self.offsets.items():
                data = await self._read(stream, offset, chunk_bytes)
                if data:
                    found = True
                    self.offsets[stream] += len(data)
                    yield stream, data

    async def follow(
        self, news: asyncio.Event, *, chunk_bytes: int
    ) -> AsyncGenerator[tuple[Stream, bytes] | None, None]:
        """The same and all that comes later, to the end of the execution; None = nothing came for a
        while. Raises OutputLost."""
        while True:
            news.clear()
            is_finished = self.execution.is_finished
            async for piece in self.there(chunk_bytes=chunk_bytes):
                yield piece
            if is_finished:
                self._check_complete()
                return
            if not await _within(news, QUIET_SECONDS):
                yield None

    async def _read(self, stream: Stream, offset: int, size: int) -> bytes:
        return await self._engine.read_output(self.execution, stream, offset, size)

    def _check_complete(self) -> None:
        for stream, offset in self.offsets.items():
            summary = self.execution.stdout if stream == "stdout" else self.execution.stderr
            if offset < summary.size_bytes:
                raise OutputLost(f"{stream} ends at byte {offset} of {summary.size_bytes}")


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def whole_or_broken(
    call: Call[Any, Any], response: web.StreamResponse
) -> AsyncIterator[None]:
    """Around the sending of `response`: once its status is sent, an error breaks the connection,
    which is all that can still say that this is not the end."""
    try:
        yield
    except ConnectionError:
        raise
    except Exception as exc:
        if not response.prepared:
            raise
        if isinstance(exc, SandboxdError | TimeoutError | OutputLost):
            logger.debug("broke off an output (request %s): %r", call.request_id, exc)
        else:
            logger.exception("cannot send the rest of an output (request %s)", call.request_id)
        if call.request.transport is not None:
            call.request.transport.abort()
        raise ConnectionResetError("output broken off") from exc


async def send(response: web.StreamResponse, data: bytes) -> None:
    """Write to a client that takes it. Raises TimeoutError when it does not."""
    async with asyncio.timeout(STALLED_SECONDS):
        await response.write(data)


async def finish(response: web.StreamResponse) -> None:
    """The end of the body. Raises TimeoutError too."""
    async with asyncio.timeout(STALLED_SECONDS):
        await response.write_eof()
