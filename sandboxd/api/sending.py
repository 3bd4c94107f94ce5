# SPDX-License-Identifier: Apache-2.0
"""Sends and receives bodies of any length in pieces, with deadlines and bounded memory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from aiohttp import web

from sandboxd.api.decode import body_chunks
from sandboxd.errors import OperationTimedOut, RangeNotSatisfiable

# A client that takes or sends no bytes for this long counts as gone.
STALLED_SECONDS = 60.0
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)


def event_stream(request_id: str) -> web.StreamResponse:
    """Return a response for Server-Sent Events."""
    return web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Request-Id": request_id,
        }
    )


async def send(response: web.StreamResponse, data: bytes) -> None:
    """Write to the client. Raises TimeoutError if the client takes no bytes for STALLED_SECONDS."""
    async with asyncio.timeout(STALLED_SECONDS):
        await response.write(data)


async def finish(response: web.StreamResponse) -> None:
    """End the body. Raises TimeoutError as `send` does."""
    async with asyncio.timeout(STALLED_SECONDS):
        await response.write_eof()


async def send_pieces(
    request: web.BaseRequest, response: web.StreamResponse, pieces: AsyncIterator[bytes]
) -> web.StreamResponse:
    """Send `response` with a body of `pieces`.

    An error after the status was sent breaks the connection, which alone can then tell the client
    that the body is not complete.
    """
    await response.prepare(request)
    try:
        async for piece in pieces:
            await send(response, piece)
        await finish(response)
    except BaseException:
        if request.transport is not None:
            request.transport.abort()
        raise
    return response


async def received_pieces(request: web.BaseRequest) -> AsyncIterator[bytes]:
    """Yield the body as received. Raises OperationTimedOut for a client that stalls."""
    pieces = body_chunks(request)
    while True:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                piece = await anext(pieces, b"")
        except TimeoutError as exc:
            raise OperationTimedOut(
                f"cannot read the body: nothing came for {STALLED_SECONDS:g} seconds"
            ) from exc
        if not piece:
            return
        yield piece


def asked_range(request: web.BaseRequest, size: int) -> range | None:
    """Return the range of bytes asked for; None = the whole file, also for unsupported ranges.

    Raises RangeNotSatisfiable. Source: RFC 9110, section 14.
    """
    found = _RANGE.fullmatch(request.headers.get("Range", "").strip())
    if found is None or found[1] == found[2] == "" or "If-Range" in request.headers:
        return None
    if found[1]:
        first, last = int(found[1]), int(found[2] or size - 1)
        if found[2] and last < first:
            return None
    else:
        first, last = max(0, size - int(found[2])), size - 1
    if first >= size or last < first:
        raise RangeNotSatisfiable(
            f"cannot read bytes {found[1]}-{found[2]}: there are {size}", details={"size": size}
        )
    return range(first, min(last, size - 1) + 1)
