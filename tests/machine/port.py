# SPDX-License-Identifier: Apache-2.0
"""The agent's end of a virtio-serial port: frames in and out, and whether a client is there."""

from __future__ import annotations

import fcntl
import os
import select
import threading
import time
from pathlib import Path

from .wire import MAX_PAYLOAD, Decoder, Frame, Kind, encode

# The kernel signals a new client by SIGIO; this is the second witness.
CLIENT_POLL_SECONDS = 5.0
# The driver learns of clients that come and go in a queue apart from their bytes, so the end of
# the last client may show while the next one is already talking. Only a lasting end is one.
GONE_SECONDS = 3.0


class Disconnected(Exception):
    """The client of this port has gone."""


class Restarted(Exception):
    """A client said hello, at once or in the middle of another's operation."""

    def __init__(self, token: bytes) -> None:
        super().__init__()
        self.token = token


class Port:
    """One virtio-serial port: frames in and out, and whether a client is there."""

    def __init__(self, path: Path, client_came: threading.Condition) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._client_came = client_came
        self._decoder = Decoder()
        self._ready: list[Frame] = []
        fcntl.fcntl(self._fd, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | os.O_ASYNC)

    def fileno(self) -> int:
        return self._fd

    def wait_for_client(self) -> None:
        """Return once a client is connected."""
        while self._has_gone(CLIENT_POLL_SECONDS):
            pass

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Send one frame, waiting for the client to read. Raises Disconnected."""
        data = memoryview(encode(kind, payload))
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                if self._poll(select.POLLOUT, None) & select.POLLHUP:
                    self._check()

    def receive(self) -> Frame:
        """Return the next frame, waiting for it. Raises Disconnected."""
        while not self._ready:
            self._poll(select.POLLIN, None)
            self._fill()
        return self._ready.pop(0)

    def receive_now(self) -> list[Frame]:
        """Return the frames that are here, after a poll said so. Raises Disconnected."""
        self._fill()
        frames, self._ready = self._ready, []
        return frames

    def _fill(self) -> None:
        try:
            data = os.read(self._fd, MAX_PAYLOAD)
        except BlockingIOError:
            return
        if not data:
            self._check()
        self._ready += self._decoder.feed(data)

    def _check(self) -> None:
        if self._has_gone(GONE_SECONDS):
            raise Disconnected

    def _has_gone(self, seconds: float) -> bool:
        """Tell whether no client is there, and none comes in that time."""
        deadline = time.monotonic() + seconds
        with self._client_came:
            while self._poll(select.POLLIN, 0) & select.POLLHUP:
                left = deadline - time.monotonic()
                if left <= 0:
                    return True
                self._client_came.wait(left)
        return False

    def _poll(self, events: int, timeout_milliseconds: int | None) -> int:
        poller = select.poll()
        poller.register(self._fd, events)
        ready = poller.poll(timeout_milliseconds)
        return ready[0][1] if ready else 0
