# SPDX-License-Identifier: Apache-2.0
"""A shim and a daemon of different versions understand each other: names on the wire stay."""

from __future__ import annotations

import json

import pytest

from sandboxd.protocol.codec import Malformed
from sandboxd.protocol.link import (
    EVENTS,
    ORDERS,
    Answered,
    CloseInput,
    Ended,
    Event,
    Failed,
    Freeze,
    Frozen,
    Go,
    Kill,
    Order,
    Ready,
    Resize,
    SendSignal,
    ShareInput,
    Started,
    Thaw,
    Thawed,
)  # fmt: skip


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (Go(), '{"op":"go"}'),
        (Kill("KILLED_BY_CALLER", 2.5),
         '{"op":"kill","code":"KILLED_BY_CALLER","grace_seconds":2.5}'),
        (SendSignal(15, True), '{"op":"signal","signal":15,"group":true}'),
        (Freeze(), '{"op":"freeze"}'),
        (Thaw(), '{"op":"thaw"}'),
        (ShareInput(7), '{"op":"input","id":7}'),
        (CloseInput(8), '{"op":"close_input","id":8}'),
        (Resize(9, 24, 80), '{"op":"resize","id":9,"rows":24,"cols":80}'),
    ],
)  # fmt: skip
def test_orders_as_a_shim_of_an_earlier_daemon_knows_them(order: Order, text: str) -> None:
    assert json.loads(ORDERS.encode(order)) == json.loads(text)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Ready(True, ("x",)), '{"event":"ready","pid_namespace":true,"missing":["x"]}'),
        (Started(1.5), '{"event":"started","at":1.5}'),
        (Failed("exec", 2, "no"), '{"event":"failed","step":"exec","errno":2,"text":"no"}'),
        (Frozen(True), '{"event":"frozen","complete":true}'),
        (Thawed(), '{"event":"thawed"}'),
        (Answered(7, True, True), '{"event":"answer","id":7,"is_open":true,"is_terminal":true}'),
        (Answered(8), '{"event":"answer","id":8}'),
        (Ended(), '{"event":"ended"}'),
    ],
)
def test_events_of_a_shim_that_is_older_than_the_daemon(event: Event, text: str) -> None:
    assert EVENTS.decode(text.encode()) == event


@pytest.mark.parametrize(
    "text", ['{"op":"kill"}', '{"op":"kill","code":1,"grace_seconds":0}', '{"op":"run"}', "[]"]
)
def test_what_is_no_order(text: str) -> None:
    with pytest.raises(Malformed):
        ORDERS.decode(text.encode())
