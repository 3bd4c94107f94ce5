# SPDX-License-Identifier: Apache-2.0
"""Frames between the host and the agent inside the machine, over one virtio-serial port.

A port is a byte stream that outlives its clients, so a client that was killed may leave half a
frame behind. A new client therefore sends `RESYNC` (longer than any frame, no byte of it starts
one) and then a HELLO with a token of its own, and drops what it reads until that token is back.
This file runs on the host and in the machine: standard library only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

MAGIC = 0xA5
MAX_PAYLOAD = 32 * 1024
_HEADER = struct.Struct("!BcI")
RESYNC = bytes(MAX_PAYLOAD + _HEADER.size)


class Kind(Enum):
    """What a frame carries; the value is its byte on the wire."""

    HELLO = b"h"  # either way: a token, sent back as it came
    REQUEST = b"q"  # host: JSON, starts one operation
    DATA = b"d"  # either way: a piece of a tar stream
    END = b"e"  # either way: the tar stream is complete
    KILL = b"k"  # host: end the running command
    STDOUT = b"o"  # machine: output of the command
    STDERR = b"r"
    DONE = b"x"  # machine: JSON, how the operation ended


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it was sent."""

    kind: Kind
    payload: bytes = b""


def encode(kind: Kind, payload: bytes = b"") -> bytes:
    """Return the frame's bytes; `payload` is at most MAX_PAYLOAD bytes."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"cannot send {len(payload)} bytes in one frame of {MAX_PAYLOAD}")
    return _HEADER.pack(MAGIC, kind.value, len(payload)) + payload


class Decoder:
    """Cut a byte stream into frames, skipping what cannot be the start of one."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Take `data` and return the frames that are complete now."""
        self._pending += data
        frames: list[Frame] = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        pending = self._pending
        while True:
            start = pending.find(MAGIC)
            del pending[: start if start >= 0 else len(pending)]
            if len(pending) < _HEADER.size:
                return None
            _, kind, length = _HEADER.unpack_from(pending)
            if length <= MAX_PAYLOAD and kind in _KINDS:
                break
            del pending[0]
        end = _HEADER.size + length
        if len(pending) < end:
            return None
        frame = Frame(_KINDS[kind], bytes(pending[_HEADER.size : end]))
        del pending[:end]
        return frame


_KINDS = {kind.value: kind for kind in Kind}
