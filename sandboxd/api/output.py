# SPDX-License-Identifier: Apache-2.0
"""Handler of .../output: the raw bytes of a stream, in chunks, so that memory stays flat."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from sandboxd.api.routes import Call
from sandboxd.errors import RangeNotSatisfiable
from sandboxd.wire.requests import Nothing, OutputQuery

logger = logging.getLogger(__name__)
_CHUNK_BYTES = 256 << 10
# A client that takes nothing for this long has gone away.
_STALLED_SECONDS = 60.0


async def read_output(call: Call[Nothing, OutputQuery]) -> web.StreamResponse:
    """What is there now, from `offset` on. Raises RangeNotSatisfiable."""
    execution = call.engine.get_execution(call.caller, call.sandbox, call.execution)
    stream, offset = call.query.stream, call.query.offset
    chunk = await call.engine.read_output(execution, stream, offset, _CHUNK_BYTES)
    if not chunk and offset:
        before = await call.engine.read_output(execution, stream, offset - 1, 1)
        if not before:
            raise RangeNotSatisfiable(
                f"cannot read {stream} from byte {offset}: it is shorter",
                details={"offset": offset},
            )
    response = web.StreamResponse(
        headers={"Content-Type": "application/octet-stream", "X-Request-Id": call.request_id}
    )
    await response.prepare(call.request)
    try:
        while chunk:
            async with asyncio.timeout(_STALLED_SECONDS):
                await response.write(chunk)
            offset += len(chunk)
            chunk = await call.engine.read_output(execution, stream, offset, _CHUNK_BYTES)
        async with asyncio.timeout(_STALLED_SECONDS):
            await response.write_eof()
    except ConnectionError:
        raise
    except Exception as exc:
        # The status is sent: only a connection that breaks still says that this is not all.
        logger.exception("cannot send the rest of an output (request %s)", call.request_id)
        if call.request.transport is not None:
            call.request.transport.abort()
        raise ConnectionResetError("output broken off") from exc
    return response
