# SPDX-License-Identifier: Apache-2.0
"""WebSocket frames in whatever pieces they come."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.client import websocket as ws
from sandboxd.client.refusals import ConnectionLost
from sandboxd.client.websocket import FrameParser, Message, frame


def from_server(data: bytes) -> bytes:
    """A client's frame without its (zero) mask is a server's."""
    size = data[1] & 0x7F
    head = {126: 4, 127: 10}.get(size, 2)
    return bytes([data[0], size]) + data[2:head] + data[head + 4 :]


MESSAGES = [
    Message(ws.TEXT, b"{}"),
    Message(ws.BINARY, bytes(125)),
    Message(ws.BINARY, bytes(126)),
    Message(ws.PING, b"p"),
    Message(ws.BINARY, bytes(70_000)),
    Message(ws.CLOSE, b"\x03\xe8"),
]
WIRE = b"".join(from_server(frame(*message)) for message in MESSAGES)


@given(st.lists(st.integers(0, len(WIRE)), max_size=6))
def test_messages_in_any_pieces(cuts: list[int]) -> None:
    parser = FrameParser()
    found: list[Message] = []
    for begin, end in itertools.pairwise([0, *sorted(cuts), len(WIRE)]):
        found += parser.feed(WIRE[begin:end])
    assert found == MESSAGES


def test_a_message_in_frames_with_a_ping_between() -> None:
    parser = FrameParser()
    wire = b"\x02\x01a" + b"\x89\x00" + b"\x00\x01b" + b"\x80\x01c"
    assert list(parser.feed(wire)) == [Message(ws.PING, b""), Message(ws.BINARY, b"abc")]


@pytest.mark.parametrize(
    "wire",
    [
        b"\xf2\x00",  # reserved bits
        b"\x82\x81\0\0\0\0a",  # masked
        b"\x80\x00",  # a continuation of nothing
        b"\x02\x01a\x82\x01b",  # one within another
        b"\x82\x7f" + b"\xff" * 8,  # too long
    ],
)
def test_what_is_no_frame_is_refused(wire: bytes) -> None:
    with pytest.raises(ConnectionLost):
        list(FrameParser().feed(wire))


def test_the_answer_has_to_fit_the_handshake() -> None:
    request = ws.handshake("/x")
    # The example of RFC 6455, 1.3.
    request.headers["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    ws.check(request, {"sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="})
    with pytest.raises(ConnectionLost, match="not a WebSocket"):
        ws.check(request, {})
