# SPDX-License-Identifier: Apache-2.0
"""A WebSocket client for tests: RFC 6455 by hand, so that it hides nothing and knows no library."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.harness import connect

TEXT, BINARY, CLOSE = 1, 2, 8


class WebSocket:
    """One connection. Every read waits a bounded time."""

    def __init__(self, path: str, target: str, *, timeout: float = 30.0) -> None:
        self.socket = connect(path, timeout)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {target} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self._buffer = b""
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._more()
        self.head, _, self._buffer = head.partition(b"\r\n\r\n")
        self.status = int(head.split(b" ")[1])

    def send(self, kind: int, data: bytes) -> None:
        """One message in one masked frame."""
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
        # A mask of zeros leaves the data as it is.
        self.socket.sendall(head + bytes(4) + data)

    def order(self, **fields: Any) -> None:
        """A text message."""
        self.send(TEXT, json.dumps(fields).encode())

    def receive(self) -> tuple[int, bytes]:
        """The next message: its kind and its data."""
        first, second = self._exactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self._exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._exactly(8))
        return first & 0x0F, self._exactly(size)

    def told(self) -> Any:
        """The next message, which must be text."""
        kind, data = self.receive()
        assert kind == TEXT, (kind, data)
        return json.loads(data)

    def until(self, text: bytes) -> bytes:
        """Output up to and with `text`, without the prefixes."""
        seen = b""
        while text not in seen:
            kind, data = self.receive()
            assert kind == BINARY, (kind, data, seen)
            seen += data[1:]
        return seen

    def to_the_end(self) -> tuple[dict[int, bytes], Any, int]:
        """All output by stream, the last control message and the close code."""
        streams = {1: b"", 2: b""}
        last = None
        while True:
            kind, data = self.receive()
            if kind == BINARY:
                streams[data[0]] += data[1:]
            elif kind == TEXT:
                last = json.loads(data)
            else:
                return streams, last, struct.unpack("!H", data[:2])[0]

    def close(self) -> None:
        """Without a word."""
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += self._more()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _more(self) -> bytes:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError("the server closed the connection")
        return data


@contextmanager
def attached(path: str, target: str, **options: Any) -> Iterator[WebSocket]:
    """A connection whose handshake succeeded and whose first message was read."""
    with contextlib.closing(WebSocket(path, target, **options)) as connection:
        assert connection.status == 101, connection.head
        assert connection.told()["type"] == "attached"
        yield connection
