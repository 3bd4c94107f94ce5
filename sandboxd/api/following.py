# SPDX-License-Identifier: Apache-2.0
"""Follows an execution's output.

Output is read from the spool files and never buffered here: each reader has offsets in the files,
goes at any pace, and loses no output by being slow.
"""

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
# After so long a silence the reader gets a sign of life, and the spools are read again, in case a
# notice of new output was lost.
QUIET_SECONDS = 15.0


class OutputLost(Exception):
    """Raised when the record, and with it unread output, was removed meanwhile."""


class Reader:
    """Reads streams of an execution, each from an offset on."""

    def __init__(self, engine: Engine, execution: Execution, offsets: Mapping[Stream, int]) -> None:
        self._engine = engine
        self.execution = execution
        self.offsets = dict(offsets)

    async def check(self) -> None:
        """Raise RangeNotSatisfiable for an offset beyond a stream's present end."""
        for stream, offset in self.offsets.items():
            if offset and not await self._read(stream, offset - 1, 1):
                raise RangeNotSatisfiable(
                    f"cannot read {stream} from byte {offset}: it is shorter",
                    details={"offset": offset},
                )

    async def there(self, *, chunk_bytes: int) -> AsyncGenerator[tuple[Stream, bytes], None]:
        """Yield the output so far, in chunks of at most `chunk_bytes`."""
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
        """Yield output to the end, None after QUIET_SECONDS of silence. Raises OutputLost."""
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
    """Break the connection on an error after the status of `response` was sent.

    A broken connection alone can then tell the client that the body is not complete.
    """
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
