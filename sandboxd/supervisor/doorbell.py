# SPDX-License-Identifier: Apache-2.0
"""The supervisor's socket: small JSON packets of our own uid, each answered at once."""

from __future__ import annotations

import select
from collections.abc import Callable

from sandboxd.osutil import seqpacket
from sandboxd.protocol.codec import Malformed, encode
from sandboxd.protocol.dialogue import ORDERS, Answer, Order, Refused

_MAX_PACKET_BYTES = 4096
_MAX_CLIENTS = 512


class Doorbell:
    """A SEQPACKET socket that replaces any file at the path, and answers each order."""

    def __init__(self, path: str, obey: Callable[[Order], Answer]) -> None:
        self._obey = obey
        self._poll = select.poll()
        self._server = seqpacket.Server(
            seqpacket.listen(path, backlog=256), self._poll,
            most=_MAX_CLIENTS, max_bytes=_MAX_PACKET_BYTES,
        )  # fmt: skip

    def wait(self, milliseconds: int) -> None:
        """Answer the orders that came, or return after `milliseconds`."""
        for fd, _ in self._poll.poll(milliseconds):
            if fd == self._server.fileno():
                self._server.accept()
            else:
                self._receive(fd)

    def _receive(self, fd: int) -> None:
        received = self._server.receive(fd)
        if received is None:
            return
        try:
            answer = self._obey(ORDERS.decode(received.packet))
        except Malformed:
            # Without root a sandbox's processes have the supervisor's uid and may send any packet.
            answer = Refused()
        # A peer that does not wait for the answer finds the result in the files.
        self._server.send(received.connection, encode(answer))
