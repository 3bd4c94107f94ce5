# SPDX-License-Identifier: Apache-2.0
"""Sizes of WebSocket messages, however they come."""

from __future__ import annotations

import pytest

from sandboxd.api.frames import Frames
from sandboxd.api.shares import SMALL_BYTES

LARGE = SMALL_BYTES + 1


def frame(size: int, opcode: int = 2, *, is_last: bool = True) -> bytes:
    """As a client sends it."""
    first = bytes([opcode | (0x80 if is_last else 0)])
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return first + length + b"mask" + bytes(size)


def is_large(frames: Frames) -> bool:
    return frames.is_large


@pytest.mark.parametrize("piece", [1, 3, 14, 1000, 1 << 20])
def test_messages_are_told_apart(piece: int) -> None:
    messages = [frame(0), frame(5), frame(200, 1), frame(LARGE), frame(3, 9), frame(SMALL_BYTES)]
    frames = Frames()
    data = b"".join(messages)
    for begin in range(0, len(data), piece):
        frames.feed(data[begin : begin + piece])
    # A ping is no message.
    found = []
    for _ in range(5):
        found.append(is_large(frames))
        frames.taken()
    assert found == [True, True, True, True, False]
    frames.taken()
    assert not is_large(frames)


def test_a_large_one_is_seen_before_it_is_complete() -> None:
    frames = Frames()
    frames.feed(frame(LARGE)[:-100])
    assert not is_large(frames)
    frames.feed(bytes(100))
    assert is_large(frames)
    frames.taken()
    assert not is_large(frames)
    frames.feed(frame(1 << 20)[: SMALL_BYTES + 100])
    assert is_large(frames)


def test_parts_of_one_message_are_counted_together() -> None:
    frames = Frames()
    frames.feed(frame(SMALL_BYTES, is_last=False) + frame(4, 9))
    assert not is_large(frames)
    frames.feed(frame(1, 0, is_last=False))
    assert is_large(frames)
    frames.feed(frame(0, 0))
    assert is_large(frames)
    frames.taken()
    assert not is_large(frames)
