# SPDX-License-Identifier: Apache-2.0
"""One client's connection: who it is, and how long it may stay silent.

aiohttp before 3.14 closes neither a connection that sends nothing nor one that stops in the
middle of its headers, so each has a deadline of its own here.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from sandboxd.api.peer import Peer, read_peer
from sandboxd.api.responses import broken_request, raw_error
from sandboxd.errors import QuotaExceeded

HEADER_SECONDS = 15.0
KEEPALIVE_SECONDS = 75.0
_LINGERING_SECONDS = 2.0
_MAX_WAITING_REQUESTS = 64
# Of one uid other than root: each costs a descriptor, of which the daemon has half a million.
MAX_CONNECTIONS = 4096
_OPTIONS: dict[str, Any] = {
    "keepalive_timeout": KEEPALIVE_SECONDS,
    "lingering_time": _LINGERING_SECONDS,
    "tcp_keepalive": False,
    "access_log": None,
    "max_headers": 128,
    # A compressed body may be a bomb; it is refused by name instead.
    "auto_decompress": False,
}
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """aiohttp's protocol with peer credentials, deadlines and our form of errors."""

    peer: Peer | None = None
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, crowd: Counter[int], *arguments: Any, **options: Any) -> None:
        """crowd: how many connections each uid has."""
        super().__init__(*arguments, **options)
        self._crowd = crowd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the credentials; the first request has to come soon."""
        connection = transport.get_extra_info("socket")
        if isinstance(connection, socket.socket) or hasattr(connection, "getsockopt"):
            self.peer = read_peer(connection)
        super().connection_made(transport)
        self._crowd[self._uid] += 1
        if self._uid != 0 and self._crowd[self._uid] > MAX_CONNECTIONS:
            self._turn_away(transport)
            return
        self._arm(HEADER_SECONDS)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the deadline."""
        self._disarm()
        self._crowd[self._uid] -= 1
        if self._crowd[self._uid] == 0:
            del self._crowd[self._uid]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; requests that wait behind a long one may not become many."""
        super().data_received(data)
        # aiohttp from 3.14 on stops reading at 32; before, it keeps all that come.
        if len(self._messages) > _MAX_WAITING_REQUESTS:
            self._expire()

    @property
    def _uid(self) -> int:
        return -1 if self.peer is None else self.peer.uid

    def _turn_away(self, transport: asyncio.BaseTransport) -> None:
        """Answer without a question: a caller that opens so many may not read this either."""
        assert isinstance(transport, asyncio.WriteTransport)
        refusal = QuotaExceeded(
            f"cannot take another connection: uid {self._uid} has {MAX_CONNECTIONS} open",
            hint="close those that are not used",
            details={"quota": "connections", "maximum": MAX_CONNECTIONS},
        )
        transport.write(raw_error(refusal))
        self._arm(_LINGERING_SECONDS)
        transport.close()

    def request_started(self) -> None:
        """A request's headers are here: from now on its handler has the deadlines."""
        self._disarm()

    def request_finished(self) -> None:
        """The answer is made: it has to be taken, and the next request to come, in time."""
        if self.transport is not None:
            self._arm(KEEPALIVE_SECONDS)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP; handlers' own errors never get here."""
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
            # Closing alone would wait for ever for a client that does not read its answer.
            transport.abort()

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class ConnectionFactory(web.Server):
    """aiohttp's low-level server, making our connections."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler, handler_cancellation=True)
        self._crowd: Counter[int] = Counter()

    def __call__(self) -> Connection:
        """The protocol of one accepted connection."""
        return Connection(self._crowd, self, loop=asyncio.get_running_loop(), **_OPTIONS)
