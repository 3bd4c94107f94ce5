# SPDX-License-Identifier: Apache-2.0
"""The shim's control socket: orders in, events out, over connections that may come and go."""

from __future__ import annotations

import select
import socket
import sys

from sandboxd.osutil.seqpacket import Server
from sandboxd.protocol import records
from sandboxd.protocol.codec import Malformed
from sandboxd.protocol.link import EVENTS, ORDERS, Answered, Event, Order

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
        self.greeting: Event | None = None

    @property
    def was_left(self) -> bool:
        """Whether there were connections and all are closed."""
        return self._had_one and not self._server.connections

    def handle(self, fd: int, events: int) -> list[Order]:
        """Return the orders that arrived on `fd`, as reported by poll; none for a malformed one."""
        if fd == self._server.fileno():
            self._accept()
            return []
        received = self._server.receive(fd)
        if received is None:
            return []
        self._asking = received.connection
        try:
            return [ORDERS.decode(received.packet)]
        except Malformed as exc:
            # To the spawner's log.
            sys.stderr.write(f"a shim's order: {exc}\n")
            return []

    def send(self, event: Event) -> None:
        """Tell every connection."""
        for connection in list(self._server.connections.values()):
            self._server.send(connection, EVENTS.encode(event))

    def answer(self, answer: Answered, fds: list[int]) -> None:
        """Answer the connection of the last order; descriptors are copied to the peer."""
        if self._asking is not None and self._asking.fileno() in self._server.connections:
            self._server.send(self._asking, EVENTS.encode(answer), fds)

    def _accept(self) -> None:
        connection = self._server.accept()
        if connection is not None:
            self._had_one = True
            if self.greeting is not None:
                self._server.send(connection, EVENTS.encode(self.greeting))
