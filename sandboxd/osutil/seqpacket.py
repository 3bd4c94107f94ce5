# SPDX-License-Identifier: Apache-2.0
"""Messages between processes of one uid: each a packet of a SOCK_SEQPACKET Unix socket."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from sandboxd.osutil.unix_sockets import bind_private, is_own


def listen(path: str, *, backlog: int) -> socket.socket:
    """Return a listener, mode 0600, that replaces any file at the path. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
        bind_private(listener, path)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(path: str, *, timeout_seconds: float = 0.0) -> socket.socket:
    """Return a connection with a timeout for each call. Raises OSError.

    Raises BlockingIOError where the queue of a hanging listener is full (unix(7), EAGAIN).
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(timeout_seconds)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def ask(path: str, question: bytes, *, timeout_seconds: float, max_bytes: int) -> bytes:
    """Return the answer to one question. Raises OSError."""
    with connect(path, timeout_seconds=timeout_seconds) as connection:
        connection.send(question)
        return connection.recv(max_bytes)


def receive(
    connection: socket.socket, *, max_bytes: int, max_fds: int = 0
) -> tuple[bytes, list[int]] | None:
    """Return the next packet and its descriptors, which no child inherits; None without one.

    The packet is empty at the end of the connection, whatever the cause. The caller owns the
    descriptors.
    """
    try:
        packet, fds, _, _ = socket.recv_fds(connection, max_bytes, max_fds)
    except BlockingIOError:
        return None
    except OSError:
        return b"", []
    for fd in fds:
        os.set_inheritable(fd, False)
    return packet, list(fds)


class Received(NamedTuple):
    """A packet, the connection, and the descriptors that came along."""

    connection: socket.socket
    packet: bytes
    fds: list[int]


class Server:
    """A listener and its connections in the caller's poll loop; foreign uids are turned away.

    most: connections at a time; a further connection is turned away or replaces the oldest.
    max_bytes, max_fds: limits of an incoming packet.
    """

    def __init__(
        self, listener: socket.socket, poller: select.poll, *,
        most: int, max_bytes: int, max_fds: int = 0, newest_stays: bool = False,
    ) -> None:  # fmt: skip
        self._listener = listener
        self._poll = poller
        self._most = most
        self._max_bytes, self._max_fds = max_bytes, max_fds
        self._newest_stays = newest_stays
        self.connections: dict[int, socket.socket] = {}
        listener.setblocking(False)
        poller.register(listener.fileno(), select.POLLIN)

    def fileno(self) -> int:
        """Return the listener's descriptor, as reported by poll."""
        return self._listener.fileno()

    def accept(self) -> socket.socket | None:
        """Accept the next connection; None if there is none that may stay."""
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # The client has gone, or there is no memory in a full cgroup: poll tells again.
            return None
        has_room = self._newest_stays or len(self.connections) < self._most
        if not has_room or not is_own(connection):
            connection.close()
            return None
        while len(self.connections) >= self._most:
            self._drop(next(iter(self.connections)))
        connection.setblocking(False)
        self.connections[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.POLLIN)
        return connection

    def receive(self, fd: int) -> Received | None:
        """Return a packet of the connection that poll reported; None without one, or at the end.

        The caller owns the packet's descriptors.
        """
        connection = self.connections.get(fd)
        if connection is None:
            return None
        received = receive(connection, max_bytes=self._max_bytes, max_fds=self._max_fds)
        if received is None:
            return None
        packet, fds = received
        if not packet:
            self._drop(fd)
            return None
        return Received(connection, packet, fds)

    def send(self, connection: socket.socket, packet: bytes, fds: Iterable[int] = ()) -> None:
        """Send to a connection, with copies of descriptors.

        A connection that does not take the packet at once misses the packet.
        """
        try:
            socket.send_fds(connection, [packet], list(fds))
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection.fileno())

    def _drop(self, fd: int) -> None:
        self._poll.unregister(fd)
        self.connections.pop(fd).close()
