# SPDX-License-Identifier: Apache-2.0
"""Daemons, shims and supervisors of two releases understand each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandboxd.protocol import dialogue
from sandboxd.protocol.codec import encode
from sandboxd.protocol.dialogue import (
    AskExecutions,
    AskMemory,
    AskUsage,
    Conclude,
    Hello,
    Kill,
    LiveUsage,
    Load,
    Order,
    Refused,
    Stop,
    Sweep,
)  # fmt: skip

USAGE = LiveUsage(1, 2, 0.5, 0.25, 3, 4, 5, 6)
OF_THE_RELEASE_BEFORE = {
    "memory_bytes": 1, "memory_peak_bytes": 2, "cpu_seconds": 0.5, "cpu_throttled_seconds": 0.25,
    "pids": 3, "pids_peak": 4, "io_read_bytes": 5, "io_written_bytes": 6,
}  # fmt: skip


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (Hello(), '{"op":"hello"}'),
        (Load("a"), '{"op":"load","sandbox":"a"}'),
        (AskMemory("a"), '{"op":"memory","sandbox":"a"}'),
        (AskUsage("a"), '{"op":"usage","sandbox":"a"}'),
        (AskExecutions("a"), '{"op":"executions","sandbox":"a"}'),
        (Kill("a"), '{"op":"kill","sandbox":"a"}'),
        (Sweep("a"), '{"op":"sweep","sandbox":"a"}'),
        (Conclude("a", "b"), '{"op":"ended","sandbox":"a","execution":"b"}'),
        (Stop(), '{"op":"stop"}'),
    ],
)
def test_orders(order: Order, text: str) -> None:
    assert json.loads(dialogue.ORDERS.encode(order)) == json.loads(text)


@pytest.mark.parametrize(
    ("codec", "answer"),
    [
        (dialogue.OBEYED, {"ok": True}),
        (dialogue.LOADED, {"ok": True, "why": None}),
        (dialogue.MEMORY_NOW, {"ok": True, "used_bytes": 7}),
        (dialogue.USAGE_NOW, {"ok": True, "usage": {**OF_THE_RELEASE_BEFORE,
                                                    "of_running_only": True}}),
        (dialogue.EXECUTIONS_NOW, {"ok": True, "executions": {"x": OF_THE_RELEASE_BEFORE}}),
        (dialogue.CONCLUDED, {"ok": True, "verdict": None}),
        (dialogue.CONCLUDED, {"ok": True, "verdict": {"reason": "oom", "owner": "sandbox",
                                                      "limit_bytes": 1, "used_bytes": 2}}),
    ],
)  # fmt: skip
def test_answers_of_a_supervisor_of_the_release_before(codec: Any, answer: dict[str, Any]) -> None:
    assert codec.decode(json.dumps(answer).encode()).ok
    assert not codec.decode(encode(Refused())).ok


def test_usage_is_read_as_it_was_meant() -> None:
    found = dialogue.EXECUTIONS_NOW.decode(
        json.dumps({"ok": True, "executions": {"x": OF_THE_RELEASE_BEFORE}}).encode()
    )
    assert found.executions == {"x": USAGE}


@pytest.mark.parametrize(
    ("greeting", "is_ours"),
    [(b'{"ok":true,"protocol":1,"pid":1}', True), (b'{"protocol":2}', False), (b"[", False)],
)
def test_another_version_is_told_by_its_number(greeting: bytes, is_ours: bool) -> None:
    assert dialogue.is_of_this_protocol(greeting) is is_ours
