# SPDX-License-Identifier: Apache-2.0
"""Server-Sent Events in whatever pieces they come."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.client import sse
from sandboxd.client.refusals import ConnectionLost
from sandboxd.client.sse import Event, EventParser

TEXT = (
    ": a comment\n\n"
    'id: a-1\nevent: one\ndata: {"ü": 1}\n\n'
    "data:two\ndata: lines\r\n\r\n"
    "event: nothing\n\n"
    "retry: 5\ndata\n\n"
    "data: not over"
).encode()
EVENTS = [Event("a-1", "one", '{"ü": 1}'), Event("a-1", "message", "two\nlines"),
          Event("a-1", "message", "")]  # fmt: skip


@given(st.lists(st.integers(0, len(TEXT)), max_size=6))
def test_events_in_any_pieces(cuts: list[int]) -> None:
    parser, edges = EventParser(), [0, *sorted(cuts), len(TEXT)]
    found: list[Event] = []
    for begin, end in itertools.pairwise(edges):
        found += parser.feed(TEXT[begin:end])
    assert found == EVENTS


def test_an_event_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_MAX_EVENT_BYTES", 1000)
    parser = EventParser()
    for _ in range(100):
        assert list(parser.feed(b"data: " + b"x" * 90 + b"\n\n"))
    with pytest.raises(ConnectionLost, match="does not end"):
        list(parser.feed(b"data: x\n" * 200))
