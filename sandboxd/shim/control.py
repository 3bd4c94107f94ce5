# SPDX-License-Identifier: Apache-2.0
"""The shim's control socket: orders in, events out, over connections that may come and go."""

from __future__ import annotations

import os
import select
import socket
from typing import Any

from sandboxd.protocol import records

_MAX_CONNECTIONS = 4


class Control:
    """A listening SEQPACKET socket and its few connections, inside the shim's poll loop.

    Peers of another uid than the shim's own are turned away. A connection that does not take an
    event at once loses it: the record is the truth, events are doorbells.
    """

    def __init__(self, listener: socket.socket, poller: select.poll) -> None:
        self._listener = listener
        self._poll = poller
        self._connections: dict[int, socket.socket] = {}
        self._had_one = False
        self._asking: socket.socket | None = None
        self.greeting: dict[str, Any] | None = None
        listener.setblocking(False)
        poller.register(listener.fileno(), select.POLLIN)

    @property
    def was_left(self) -> bool:
        """Whether somebody was connected and nobody is any more."""
        return self._had_one and not self._connections

    def handle(self, fd: int, events: int) -> list[dict[str, Any]]:
        """Orders that arrived on `fd`, which poll reported."""
        if fd == self._listener.fileno():
            self._accept()
            return []
        connection = self._connections.get(fd)
        if connection is None:
            return []
        try:
            packet = connection.recv(records.MAX_PACKET_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            packet = b""
        if not packet:
            self._drop(fd)
            return []
        self._asking = connection
        return [records.decode(packet)]

    def send(self, event: dict[str, Any]) -> None:
        """Tell every connection."""
        for connection in list(self._connections.values()):
            self._send(connection, event)

    def answer(self, order: dict[str, Any], answer: dict[str, Any], fds: list[int]) -> None:
        """Tell the connection that the last order came from; descriptors are copied to it."""
        if self._asking is not None and self._asking.fileno() in self._connections:
            self._send(self._asking, {"event": "answer", "id": order["id"], **answer}, fds)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # Nobody any more, or no memory for it in a full cgroup: poll tells again.
            return
        if records.peer_uid(connection) != os.getuid():
            connection.close()
            return
        while len(self._connections) >= _MAX_CONNECTIONS:
            self._drop(next(iter(self._connections)))
        connection.setblocking(False)
        self._connections[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.POLLIN)
        self._had_one = True
        if self.greeting is not None:
            self._send(connection, self.greeting)

    def _send(
        self, connection: socket.socket, event: dict[str, Any], fds: list[int] | None = None
    ) -> None:
        try:
            socket.send_fds(connection, [records.encode(event)], fds or [])
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection.fileno())

    def _drop(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._connections.pop(fd).close()
