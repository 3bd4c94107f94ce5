# SPDX-License-Identifier: Apache-2.0
"""A WebSocket's client side (RFC 6455) as bytes, without I/O. No extensions are offered."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sandboxd.client.refusals import unreadable
from sandboxd.client.request import TIMEOUT_SECONDS, Request

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MAX_MESSAGE_BYTES = 16 << 20


class Message(NamedTuple):
    """TEXT, BINARY, or one of the control frames CLOSE, PING, PONG."""

    opcode: int
    data: bytes


def handshake(path: str) -> Request:
    """The request that opens one."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode("ascii"),
    }
    return Request("GET", path, headers=headers, switches=True, timeout_seconds=TIMEOUT_SECONDS)


def check(request: Request, headers: dict[str, str]) -> None:
    """Raise ConnectionLost where the answer is not one to this handshake."""
    key = request.headers["Sec-WebSocket-Key"].encode("ascii")
    digest = hashlib.sha1(key + _GUID, usedforsecurity=False).digest()
    if headers.get("sec-websocket-accept") != base64.b64encode(digest).decode("ascii"):
        raise unreadable("not a WebSocket")


def frame(opcode: int, data: bytes) -> bytes:
    """One frame, masked as a client's are."""
    size = len(data)
    head = bytes([0x80 | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += struct.pack(">BH", 0x80 | 126, size)
    else:
        head += struct.pack(">BQ", 0x80 | 127, size)
    # Masks keep proxies from taking a script's bytes for a request; a Unix socket has none.
    mask = bytes(4)
    return head + mask + data


class FrameParser:
    """`feed` what came; whole messages come out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._opcode = 0
        self._message = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete by now. Raises ConnectionLost for what is not one."""
        self._buffer += data
        while (found := self._frame()) is not None:
            is_last, opcode, payload = found
            if opcode >= CLOSE:
                yield Message(opcode, payload)
                continue
            if (opcode == CONTINUATION) != bool(self._opcode):
                raise unreadable("a WebSocket message that begins within another")
            self._opcode = self._opcode or opcode
            self._message += payload
            if len(self._message) > MAX_MESSAGE_BYTES:
                raise unreadable("a WebSocket message without an end")
            if is_last:
                yield Message(self._opcode, bytes(self._message))
                self._opcode = 0
                self._message.clear()

    def _frame(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, begin = buffer[1] & 0x7F, 2
        if buffer[0] & 0x70 or buffer[1] & 0x80:
            raise unreadable("a WebSocket frame of an unknown form")
        if size >= 126:
            begin = 4 if size == 126 else 10
            if len(buffer) < begin:
                return None
            size = int.from_bytes(buffer[2:begin], "big")
        if size > MAX_MESSAGE_BYTES:
            raise unreadable("a WebSocket frame that is too long")
        if len(buffer) < begin + size:
            return None
        found = bool(buffer[0] & 0x80), buffer[0] & 0x0F, bytes(buffer[begin : begin + size])
        del buffer[: begin + size]
        return found
