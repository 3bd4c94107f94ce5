# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machine.wire import MAX_PAYLOAD, RESYNC, Decoder, Frame, Kind, encode

FRAMES = st.builds(Frame, st.sampled_from(Kind), st.binary(max_size=300))


@given(st.lists(FRAMES, max_size=5), st.integers(1, 40))
def test_frames_survive_any_cut(frames: list[Frame], size: int) -> None:
    stream = b"".join(encode(frame.kind, frame.payload) for frame in frames)
    decoder = Decoder()
    seen: list[Frame] = []
    for start in range(0, len(stream), size):
        seen += decoder.feed(stream[start : start + size])
    assert seen == frames


@given(FRAMES, st.integers(0, 400), FRAMES)
def test_resync_ends_any_half_frame(broken: Frame, cut: int, after: Frame) -> None:
    half = encode(broken.kind, broken.payload)[:cut]
    seen = Decoder().feed(half + RESYNC + encode(after.kind, after.payload))
    assert seen[-1] == after


@given(st.binary(max_size=100))
def test_what_starts_no_frame_is_skipped(junk: bytes) -> None:
    frame = Frame(Kind.HELLO, b"token")
    stream = junk + RESYNC + encode(frame.kind, frame.payload)
    assert Decoder().feed(stream)[-1] == frame


def test_a_frame_has_a_greatest_size() -> None:
    with pytest.raises(ValueError, match="cannot send 32769 bytes"):
        encode(Kind.DATA, bytes(MAX_PAYLOAD + 1))
