# SPDX-License-Identifier: Apache-2.0
"""The supervisor's socket: small JSON packets of our own uid, each answered at once."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_MAX_PACKET_BYTES = 4096
_MAX_CLIENTS = 512


class Doorbell:
    """Listens on a SEQPACKET socket that replaces whatever was on the path."""

    def __init__(self, path: str, obey: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._obey = obey
        self._clients: dict[int, socket.socket] = {}
        self._poll = select.poll()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with suppress(FileNotFoundError):
            os.unlink(path)
        mask = os.umask(0o177)
        self._listener.bind(path)
        os.umask(mask)
        self._listener.listen(256)
        self._listener.setblocking(False)
        self._poll.register(self._listener.fileno(), select.POLLIN)

    def wait(self, milliseconds: int) -> None:
        """Answer who rings, or return when the time is over."""
        for fd, _ in self._poll.poll(milliseconds):
            if fd == self._listener.fileno():
                self._accept()
            elif fd in self._clients:
                self._receive(fd)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        size = struct.calcsize("3i")
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        uid = struct.unpack("3i", credentials)[1]
        if uid != os.getuid() or len(self._clients) >= _MAX_CLIENTS:
            client.close()
            return
        client.setblocking(False)
        self._clients[client.fileno()] = client
        self._poll.register(client.fileno(), select.POLLIN)

    def _receive(self, fd: int) -> None:
        client = self._clients[fd]
        try:
            packet = client.recv(_MAX_PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._poll.unregister(fd)
            self._clients.pop(fd).close()
            return
        try:
            answer = self._obey(json.loads(packet))
        except (ValueError, KeyError, AttributeError):
            # Without root a sandbox's own processes have our uid and may send anything.
            answer = {"ok": False}
        # One that does not wait for its answer knows the answer from the files.
        with suppress(OSError):
            client.send(json.dumps(answer).encode())
