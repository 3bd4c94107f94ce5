# SPDX-License-Identifier: Apache-2.0
"""A SEQPACKET connection in the event loop: packets with file descriptors."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from sandboxd.osutil import seqpacket
from sandboxd.protocol import records

_MAX_FDS = 4
# Owns the descriptors.
Receiver = Callable[[bytes, list[int]], None]


class Packets:
    """Calls `on_packet` for each packet that arrives and `on_end` once, at the end."""

    def __init__(
        self, connection: socket.socket, on_packet: Receiver, on_end: Callable[[], None]
    ) -> None:
        self._socket = connection
        self._on_packet = on_packet
        self._on_end = on_end
        self._open = True
        connection.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._receive)

    def send(self, packet: bytes, fds: list[int] | None = None) -> bool:
        """Send one packet whole; False when the connection is over.

        The peer's queue holds more packets than are ever under way, so a full queue means that the
        peer hangs: the connection counts as over.
        """
        if not self._open:
            return False
        try:
            socket.send_fds(self._socket, [packet], fds or [])
        except OSError:
            self.close()
            self._on_end()
            return False
        return True

    def close(self) -> None:
        """Close without telling `on_end`."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _receive(self) -> None:
        # One packet a call: the loop comes back while there are more, and serves further events
        # between.
        received = seqpacket.receive(
            self._socket, max_bytes=records.MAX_PACKET_BYTES, max_fds=_MAX_FDS
        )
        if received is None:
            return
        packet, fds = received
        if not packet:
            self.close()
            self._on_end()
            return
        self._on_packet(packet, fds)
