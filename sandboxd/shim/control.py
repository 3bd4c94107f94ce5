# SPDX-License-Identifier: Apache-2.0
"""The shim's control socket: orders in, events out, over connections that may come and go."""

from __future__ import annotations

import select
import socket
from typing import Any

from sandboxd.osutil.objects import decode, encode
from sandboxd.osutil.seqpacket import Server
from sandboxd.protocol import records

_MAX_CONNECTIONS = 4


class Control:
    """A listening SEQPACKET socket and a few connections, inside the shim's poll loop.

    Peers of another uid than the shim's are turned away. A connection that does not take an event
    at once misses the event: the record is the truth, events are doorbells.
    """

    def __init__(self, listener: socket.socket, poller: select.poll) -> None:
        self._server = Server(
            listener, poller,
            most=_MAX_CONNECTIONS, max_bytes=records.MAX_PACKET_BYTES, newest_stays=True,
        )  # fmt: skip
        self._had_one = False
        self._asking: socket.socket | None = None
        self.greeting: dict[str, Any] | None = None

    @property
    def was_left(self) -> bool:
        """Whether there were connections and all are closed."""
        return self._had_one and not self._server.connections

    def handle(self, fd: int, events: int) -> list[dict[str, Any]]:
        """Return the orders that arrived on `fd`, as reported by poll."""
        if fd == self._server.fileno():
            self._accept()
            return []
        received = self._server.receive(fd)
        if received is None:
            return []
        self._asking = received.connection
        return [decode(received.packet)]

    def send(self, event: dict[str, Any]) -> None:
        """Tell every connection."""
        for connection in list(self._server.connections.values()):
            self._server.send(connection, encode(event))

    def answer(self, order: dict[str, Any], answer: dict[str, Any], fds: list[int]) -> None:
        """Answer the connection of the last order; descriptors are copied to the peer."""
        if self._asking is not None and self._asking.fileno() in self._server.connections:
            event = {"event": "answer", "id": order["id"], **answer}
            self._server.send(self._asking, encode(event), fds)

    def _accept(self) -> None:
        connection = self._server.accept()
        if connection is not None:
            self._had_one = True
            if self.greeting is not None:
                self._server.send(connection, encode(self.greeting))
