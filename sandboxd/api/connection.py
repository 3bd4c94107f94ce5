# SPDX-License-Identifier: Apache-2.0
"""A client's connection: peer credentials, deadlines for silence, bounds on buffered input.

aiohttp before 3.14 closes no connection that stays silent or stops in the middle of the headers, so
each connection has a deadline here. Neither does aiohttp bound headers, trailers and chunk lines
(api/head.py), nor the number of chunks that wait for a reader.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import _ErrInfo

from sandboxd.api import head
from sandboxd.api.frames import Frames
from sandboxd.api.peer import Peer, read_peer
from sandboxd.api.responses import broken_request, raw_error
from sandboxd.api.shares import Shares
from sandboxd.core.fair import FairSum, Holdings
from sandboxd.errors import QuotaExceeded

HEADER_SECONDS = 15.0
KEEPALIVE_SECONDS = 75.0
_LINGERING_SECONDS = 2.0
_MAX_WAITING_REQUESTS = 64
# Each connection costs descriptors and buffers. Of the descriptors, a quarter is for connections of
# root, and a quarter for connections of all further callers.
OF_ALL = FairSum(total=8192, little=32, most=1024)
_DESCRIPTORS_SHARE = 4
# The most bytes read from a socket at once, and the most bytes of a body buffered for the reader.
_READ_BYTES = 64 << 10
_BODY_BYTES = 32 << 10
# aiohttp keeps an object or two for each waiting chunk of a chunked body.
_MAX_WAITING_CHUNKS = 2048
# Of a WebSocket message; a large waiting message counts as this many bytes.
MAX_MESSAGE_BYTES = 1 << 20
# aiohttp before 3.14 bounds waiting messages by bytes alone, and a message may be empty.
MAX_WAITING_MESSAGES = 1000
# Rest of a caller that sent malformed HTTP, before the next turn: working clients send none.
_REST_SECONDS = 0.02
_OPTIONS: dict[str, Any] = {
    "keepalive_timeout": KEEPALIVE_SECONDS,
    "lingering_time": _LINGERING_SECONDS,
    "tcp_keepalive": False,
    "access_log": None,
    "max_headers": head.MAX_HEADERS,
    "read_bufsize": _BODY_BYTES,
    # A compressed body may be a decompression bomb; api/decode.py refuses Content-Encoding.
    "auto_decompress": False,
}
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """aiohttp's protocol with peer credentials, deadlines and sandboxd's form of errors."""

    peer: Peer | None = None
    _deadline: asyncio.TimerHandle | None = None

    def __init__(
        self,
        crowd: Holdings,
        shares: Shares,
        messages: Shares,
        *arguments: Any,
        **options: Any,
    ) -> None:
        """Make the protocol of an accepted connection.

        crowd: the connections of each uid. messages: shares of large WebSocket messages, which are
        kept until the program reads the input.
        """
        super().__init__(*arguments, **options)
        self._crowd = crowd
        self._shares = shares
        self._messages_shares = messages
        self._frames: Frames | None = None
        self._room: asyncio.Task[int] | None = None
        # Input kept unparsed behind too many waiting messages; None while input is parsed.
        self._held_back: bytes | None = None
        self._turn: asyncio.Future[None] | None = None
        self._head = head.Head()
        self._body: StreamReader = EMPTY_PAYLOAD
        self._is_refused = False
        self._is_counted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the credentials, and expect the first request within HEADER_SECONDS."""
        connection = transport.get_extra_info("socket")
        if isinstance(connection, socket.socket) or hasattr(connection, "getsockopt"):
            self.peer = read_peer(connection)
        # asyncio reads up to 256 KiB at once, and all is parsed before a reader can pause reading.
        transport.max_size = _READ_BYTES  # type: ignore[attr-defined]
        super().connection_made(transport)
        try:
            self._crowd.take(self._uid)
        except QuotaExceeded as exc:
            self._turn_away(transport, exc)
            return
        self._is_counted = True
        # A caller's flood of connections is read by turns, not all at once.
        self._turn = self._shares.ask_turn(self._uid)
        if self._turn is None:
            self._arm(HEADER_SECONDS)
            return
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        self._turn.add_done_callback(self._begin_reading)

    def _begin_reading(self, _turn: asyncio.Future[None]) -> None:
        if self.transport is not None:
            self._arm(HEADER_SECONDS)
            self.transport.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Drop the deadline, the turn and the counted room."""
        self._disarm()
        if self._turn is not None:
            self._turn.cancel()
        self._give_room_back()
        if self._is_counted:
            self._crowd.give_back(self._uid)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes within bounds."""
        # aiohttp calls with b"" to go on with bytes that the parser has held back.
        for begin in range(0, max(len(data), 1), head.PIECE_BYTES):
            if not self._is_refused:
                self._take(data[begin : begin + head.PIECE_BYTES])
        # aiohttp from 3.14 on stops reading at 32 requests; before, aiohttp keeps all.
        if len(self._messages) > _MAX_WAITING_REQUESTS:
            self._expire()

    def _take(self, piece: bytes) -> None:
        if self._payload_parser is not None:
            self._take_messages(piece)
            return
        count, received = self._request_count, self._body.total_bytes
        if self._body.is_eof() and (cause := self._head.continue_line(piece)) is not None:
            self._refuse(cause)
            return
        super().data_received(piece)
        if self._request_count != count:
            self._look_at_messages()
        elif self._body.total_bytes == received and not self._is_held_up:
            if (cause := self._head.add(piece)) is not None:
                self._refuse(cause)
            return
        self._head.clear()
        chunks = getattr(self._body, "_http_chunk_splits", None)
        if chunks and len(chunks) > _MAX_WAITING_CHUNKS and not self._is_held_up:
            # aiohttp resumes reading at the next read of the body.
            self.pause_reading()

    def set_parser(self, *arguments: Any, **options: Any) -> None:
        """Switch to WebSocket frames, the first of which may have been received already."""
        self._frames = Frames()
        self._frames.feed(self._message_tail)
        super().set_parser(*arguments, **options)

    def _take_messages(self, piece: bytes) -> None:
        """Take WebSocket frames: few waiting, and large ones once the caller's share has room."""
        if self._held_back is not None:
            self._held_back += piece
            return
        super().data_received(piece)
        if self._frames is None:
            return
        self._frames.feed(piece)
        if self._frames.waiting > MAX_WAITING_MESSAGES:
            self._held_back = b""
            self.pause_reading()
        if self._frames.is_large and self._room is None and self.transport is not None:
            room = self._messages_shares.take(self._uid, MAX_MESSAGE_BYTES)
            self._room = asyncio.get_running_loop().create_task(room)
            self._room.add_done_callback(self._go_on)
            self.pause_reading()

    def _go_on(self, _room: asyncio.Task[int]) -> None:
        if self.transport is not None:
            self.resume_reading()

    def message_taken(self) -> None:
        """Count the oldest waiting message as read, and go on reading if there is room."""
        if self._frames is not None:
            self._frames.taken()
            if not self._frames.is_large:
                self._give_room_back()
            if self._held_back is not None and self._frames.waiting <= MAX_WAITING_MESSAGES // 2:
                held, self._held_back = self._held_back, None
                self.data_received(held)
                self.resume_reading()

    def _give_room_back(self) -> None:
        room, self._room = self._room, None
        if room is not None and room.done() and not room.cancelled():
            self._messages_shares.give_back(self._uid, room.result())
        elif room is not None:
            room.cancel()

    def resume_reading(self, *arguments: Any, **options: Any) -> None:
        """Resume reading unless held back or waiting for room."""
        if self._held_back is None and (self._room is None or self._room.done()):
            super().resume_reading(*arguments, **options)

    @property
    def _is_held_up(self) -> bool:
        """Whether the parser may hold more input than reported so far."""
        return self._reading_paused or getattr(self, "_buffer_paused", False)

    def _look_at_messages(self) -> None:
        """Check the request, or the parser's error, that was parsed last."""
        if not self._messages:
            return
        message, body = self._messages[-1]
        if isinstance(message, _ErrInfo):
            self._shares.rest(self._uid, _REST_SECONDS)
            # aiohttp 3.11 does not tell the reader of a body that the body is broken.
            if not self._body.is_eof():
                self._messages.pop()
                self._refuse(message.message)
            return
        self._body = body
        if self._waiter is not None:
            # All earlier requests are answered: from now on the handler takes the time.
            self._disarm()
        if len(message.raw_headers) > head.MAX_HEADERS:
            self._messages.pop()
            self._body = EMPTY_PAYLOAD
            self._refuse(f"there are over {head.MAX_HEADERS} headers")

    def _refuse(self, cause: str) -> None:
        """Refuse further input; the error is answered after all earlier requests."""
        self._is_refused = True
        self._shares.rest(self._uid, _REST_SECONDS)
        self._arm(KEEPALIVE_SECONDS)
        if not self._body.is_eof():
            self._body.set_exception(web.RequestPayloadError(cause))
            return
        error = BadHttpMessage(cause)
        self._messages.append((_ErrInfo(status=400, exc=error, message=cause), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def _uid(self) -> int:
        return -1 if self.peer is None else self.peer.uid

    def _turn_away(self, transport: asyncio.BaseTransport, refusal: QuotaExceeded) -> None:
        """Send an error before any request, and close soon: the client may never read."""
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(raw_error(refusal))
        self._arm(_LINGERING_SECONDS)
        transport.close()

    def request_started(self) -> None:
        """Drop the deadline: from now on the request's handler has deadlines."""
        self._disarm()

    def request_finished(self) -> None:
        """Expect the client to take the answer and to send a request within KEEPALIVE_SECONDS."""
        if self.transport is not None:
            self._arm(KEEPALIVE_SECONDS)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer malformed HTTP; errors of handlers are answered elsewhere."""
        del request, exc
        return broken_request(status, message)

    def _arm(self, seconds: float) -> None:
        self._disarm()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        transport = self.transport
        self.force_close()
        if transport is not None:
            # close() alone would wait for ever for a client that does not read the answer.
            transport.abort()

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class ConnectionFactory(web.Server):
    """aiohttp's low-level server, with a Connection for each accepted socket."""

    def __init__(self, handler: Handler, shares: Shares) -> None:
        super().__init__(handler, handler_cancellation=True)
        self._shares = shares
        self._messages = Shares()
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        total = min(OF_ALL.total, descriptors // _DESCRIPTORS_SHARE)
        self._crowd = Holdings(
            replace(OF_ALL, total=total),
            "connections",
            verb="take another connection",
            hint="close those that are not used",
        )

    def __call__(self) -> Connection:
        """Return the protocol of an accepted connection."""
        loop = asyncio.get_running_loop()
        return Connection(self._crowd, self._shares, self._messages, self, loop=loop, **_OPTIONS)
