# SPDX-License-Identifier: Apache-2.0
"""Any packet is answered: without root every process of a sandbox may send one."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandboxd.osutil import seqpacket
from sandboxd.protocol.dialogue import Answer, Conclude, Obeyed, Order
from sandboxd.supervisor.doorbell import Doorbell


def asked(tmp_path: Path, packet: bytes) -> tuple[object, list[Order]]:
    """The answer to a packet, and what the supervisor was told of it."""
    orders: list[Order] = []

    def obey(order: Order) -> Answer:
        orders.append(order)
        return Obeyed()

    doorbell = Doorbell(str(tmp_path / "socket"), obey)
    server = doorbell._server
    with server._listener, ExitStack() as stack:
        client = seqpacket.connect(str(tmp_path / "socket"), timeout_seconds=10)
        stack.enter_context(client)
        client.send(packet)
        doorbell.wait(10_000)
        for connection in server.connections.values():
            stack.enter_context(connection)
        doorbell.wait(10_000)
        return json.loads(client.recv(4096)), orders


@pytest.mark.parametrize(
    "packet",
    [
        b"{",
        b"[" * 4096,
        b'{"op": "dance"}',
        b'{"op": ["stop"]}',
        b'{"op": "ended", "sandbox": "x"}',
        b'{"op": "ended", "sandbox": "x", "execution": []}',
        b'{"op": "kill", "sandbox": {}}',
        b'{"op": "stop", "now": true}',
    ],
)
def test_no_order_is_refused(tmp_path: Path, packet: bytes) -> None:
    assert asked(tmp_path, packet) == ({"ok": False}, [])


def test_an_order_of_a_shim_of_the_release_before_is_obeyed(tmp_path: Path) -> None:
    packet = b'{"op":"ended","sandbox":"abcdefghijkl","execution":"mnopqrstuvwx"}'
    answer, orders = asked(tmp_path, packet)
    assert answer == {"ok": True}
    assert orders == [Conclude("abcdefghijkl", "mnopqrstuvwx")]
