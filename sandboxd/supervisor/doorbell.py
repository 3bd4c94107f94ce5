# SPDX-License-Identifier: Apache-2.0
"""The supervisor's socket: small JSON packets of our own uid, each answered at once."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

from sandboxd.osutil import seqpacket
from sandboxd.osutil.objects import decode

_MAX_PACKET_BYTES = 4096
_MAX_CLIENTS = 512


class Doorbell:
    """Listens on a SEQPACKET socket that replaces whatever was on the path."""

    def __init__(self, path: str, obey: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._obey = obey
        self._poll = select.poll()
        self._server = seqpacket.Server(
            seqpacket.listen(path, backlog=256), self._poll,
            most=_MAX_CLIENTS, max_bytes=_MAX_PACKET_BYTES,
        )  # fmt: skip

    def wait(self, milliseconds: int) -> None:
        """Answer who rings, or return when the time is over."""
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
            answer = self._obey(decode(received.packet))
        except (ValueError, KeyError, AttributeError):
            # Without root a sandbox's own processes have our uid and may send anything.
            answer = {"ok": False}
        # One that does not wait for its answer knows the answer from the files.
        self._server.send(received.connection, answer)
