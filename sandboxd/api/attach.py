# SPDX-License-Identifier: Apache-2.0
"""Handler of .../attach: a WebSocket with all of an execution's streams.

Binary messages are bytes: to the server standard input, to the client one byte for the stream (1 is
stdout, 2 is stderr) and then output. Text messages are JSON objects with a `type`: to the server
`resize` and `close_stdin`, to the client `attached`, `error` and, at last, `exit`. A client that
closes the connection has detached: the execution goes on. Many clients may be attached at once;
each client sees all output, and the server takes input message by message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web
from pydantic_core import to_json

from sandboxd.api.connection import MAX_MESSAGE_BYTES, Connection
from sandboxd.api.decode import validate
from sandboxd.api.following import Reader, whole_or_broken
from sandboxd.api.hangup import ending_with_client
from sandboxd.api.records import execution_bytes
from sandboxd.api.responses import error_body
from sandboxd.api.routes import Call
from sandboxd.api.sending import STALLED_SECONDS
from sandboxd.core.model import Stream, TerminalSize
from sandboxd.engine.requests import Progress
from sandboxd.errors import Draining, InvalidRequest, SandboxdError
from sandboxd.wire.answers import ExecutionAnswer
from sandboxd.wire.queries import AttachQuery
from sandboxd.wire.requests import AttachOrder, Nothing

_CHUNK_BYTES = 64 << 10
_CLOSE_SECONDS = 0.3
_PREFIX: dict[Stream, bytes] = {"stdout": b"\1", "stderr": b"\2"}


async def attach(call: Call[Nothing, AttachQuery]) -> web.StreamResponse:
    """Send both streams, each from its beginning, an offset or its present end, and take input.

    Raises InvalidRequest for a request that asks for no WebSocket, RangeNotSatisfiable.
    """
    execution = call.engine.get_execution(call.caller, call.sandbox, call.execution)
    now = {"stdout": execution.stdout.size_bytes, "stderr": execution.stderr.size_bytes}
    # aiohttp refuses a message of exactly max_msg_size.
    socket = web.WebSocketResponse(
        max_msg_size=MAX_MESSAGE_BYTES + 1, compress=False, timeout=_CLOSE_SECONDS
    )
    if not socket.can_prepare(call.request).ok:
        raise InvalidRequest(
            "cannot attach: the request does not ask for a WebSocket",
            hint="connect with a WebSocket client, or use .../output, .../events and .../stdin",
        )
    reader = Reader(call.engine, execution, call.query.offsets(now))
    await reader.check()
    socket.headers["X-Request-Id"] = call.request_id
    attached = _Attached(call, socket, reader)
    async with whole_or_broken(call, socket):
        try:
            async with call.work.streaming(call.caller.uid, execution.id):
                with call.engine.follow(call.caller, call.sandbox, call.execution) as news:
                    await socket.prepare(call.request)
                    with ending_with_client(call.request):
                        await attached.serve(news)
        except Draining:
            if not socket.prepared:
                raise
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"sandboxd is stopping")
    return socket


class _Attached:
    """The connection of an attached client."""

    def __init__(
        self, call: Call[Nothing, AttachQuery], socket: web.WebSocketResponse, reader: Reader
    ) -> None:
        self._call = call
        self._socket = socket
        self._reader = reader

    async def serve(self, news: asyncio.Event) -> None:
        """Send output and take input until either direction ends."""
        offsets = {f"{name}_offset_bytes": offset for name, offset in self._reader.offsets.items()}
        await self._tell({"type": "attached", **offsets})
        async with asyncio.TaskGroup() as tasks:
            outgoing = tasks.create_task(self._send_output(news))
            incoming = tasks.create_task(self._take_input())
            outgoing.add_done_callback(lambda _: incoming.cancel())
            incoming.add_done_callback(lambda _: outgoing.cancel())
        with suppress(ConnectionError):
            await self._socket.close()

    async def _send_output(self, news: asyncio.Event) -> None:
        follow = self._reader.follow(news, chunk_bytes=_CHUNK_BYTES)
        # A closed connection means detached, which is no error.
        with suppress(ConnectionError):
            async with aclosing(follow) as pieces:
                async for piece in pieces:
                    if piece is not None:
                        async with asyncio.timeout(STALLED_SECONDS):
                            await self._socket.send_bytes(_PREFIX[piece[0]] + piece[1])
            await self._call.share.hold(execution_bytes(self._reader.execution))
            answer = ExecutionAnswer.of(self._reader.execution, None, None)
            await self._tell({"type": "exit", "execution": answer.model_dump(mode="json")})

    async def _take_input(self) -> None:
        connection = self._call.request.protocol
        assert isinstance(connection, Connection)
        with suppress(ConnectionError):
            async for message in self._socket:
                try:
                    if message.type is WSMsgType.BINARY:
                        await self._write(message.data)
                    elif message.type is WSMsgType.TEXT:
                        await self._obey(validate(AttachOrder, message.data.encode()))
                except SandboxdError as exc:
                    await self._tell({"type": "error", **error_body(exc, self._call.request_id)})
                del message
                connection.message_taken()

    async def _write(self, data: bytes) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield data

        call, progress = self._call, Progress()
        try:
            await call.engine.write_input(
                call.caller, call.sandbox, call.execution, chunks(), progress
            )
        except SandboxdError as exc:
            exc.details["written_bytes"] = progress.written_bytes
            raise

    async def _obey(self, order: AttachOrder) -> None:
        call = self._call
        if order.type == "close_stdin":
            await call.engine.close_input(call.caller, call.sandbox, call.execution)
        else:
            size = TerminalSize(order.rows or 0, order.cols or 0)
            await call.engine.resize_terminal(call.caller, call.sandbox, call.execution, size)

    async def _tell(self, message: dict[str, Any]) -> None:
        async with asyncio.timeout(STALLED_SECONDS):
            await self._socket.send_str(to_json(message).decode())
