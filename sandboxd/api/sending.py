# SPDX-License-Identifier: Apache-2.0
"""Bodies of any length, out and in: in pieces, so that memory stays flat, and with deadlines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from aiohttp import web

from sandboxd.api.decode import body_chunks
from sandboxd.errors import OperationTimedOut, RangeNotSatisfiable

# A client that takes or sends nothing for this long has gone away.
STALLED_SECONDS = 60.0
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)


async def send_pieces(
    request: web.BaseRequest, response: web.StreamResponse, pieces: AsyncIterator[bytes]
) -> web.StreamResponse:
    """Send a body. What goes wrong after the status is sent breaks the connection: only that still
    says that this is not all."""
    await response.prepare(request)
    try:
        async for piece in pieces:
            async with asyncio.timeout(STALLED_SECONDS):
                await response.write(piece)
        async with asyncio.timeout(STALLED_SECONDS):
            await response.write_eof()
    except BaseException:
        if request.transport is not None:
            request.transport.abort()
        raise
    return response


async def received_pieces(request: web.BaseRequest) -> AsyncIterator[bytes]:
    """The body as it comes. Raises OperationTimedOut for a client that stalls."""
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
    """The one range of bytes that was asked for; None: all of them, also for what we do not serve.

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
