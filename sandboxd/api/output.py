# SPDX-License-Identifier: Apache-2.0
"""Handler of .../output: a stream's raw bytes, sent in chunks to bound the memory used."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from sandboxd.api import following
from sandboxd.api.following import Reader, whole_or_broken
from sandboxd.api.moments import offset_since
from sandboxd.api.routes import Call
from sandboxd.api.sending import finish, send
from sandboxd.core.model import Stream
from sandboxd.wire.queries import OutputQuery
from sandboxd.wire.requests import Nothing

# Memory that each of many slow followers may occupy.
_FOLLOW_CHUNK_BYTES = 64 << 10


async def read_output(call: Call[Nothing, OutputQuery]) -> web.StreamResponse:
    """Send the output so far from `offset` on, or follow to the end of the execution.

    Raises RangeNotSatisfiable, OutputTimesUnknown.
    """
    execution = call.engine.get_execution(call.caller, call.sandbox, call.execution)
    stream = call.query.stream
    since = await offset_since(call.engine, execution, stream, call.query.since)
    offset = max(call.query.offset, since)
    reader = Reader(call.engine, execution, {stream: offset})
    await reader.check()
    response = web.StreamResponse(
        headers={
            "Content-Type": "application/octet-stream",
            "X-Output-Offset": str(offset),
            "X-Request-Id": call.request_id,
        }
    )
    async with whole_or_broken(call, response):
        if not call.query.follow:
            await _send(call, response, reader.there(chunk_bytes=following.CHUNK_BYTES))
            return response
        async with call.work.streaming(call.caller.uid, execution.id):
            with call.engine.follow(call.caller, call.sandbox, call.execution) as news:
                pieces = reader.follow(news, chunk_bytes=_FOLLOW_CHUNK_BYTES)
                await _send(call, response, pieces)
    return response


async def _send(
    call: Call[Nothing, OutputQuery],
    response: web.StreamResponse,
    pieces: AsyncGenerator[tuple[Stream, bytes] | None, None],
) -> None:
    await response.prepare(call.request)
    async with aclosing(pieces):
        async for piece in pieces:
            if piece is not None:
                await send(response, piece[1])
    await finish(response)
