# SPDX-License-Identifier: Apache-2.0
"""A shim goes on after an order that is none."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from sandboxd.osutil import seqpacket
from sandboxd.protocol.link import EVENTS, ORDERS, Ready, SendSignal
from sandboxd.shim.control import Control


@pytest.mark.parametrize(
    "packet", [b"{", b"[" * 4096, b'{"op": "signal"}', b'{"op": "kill", "code": 1}', b'{"op": 1}']
)
def test_what_is_no_order_is_said_and_the_next_one_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packet: bytes
) -> None:
    path, poller = str(tmp_path / "control"), select.poll()
    listener = seqpacket.listen(path, backlog=1)
    control = Control(listener, poller)
    control.greeting = Ready(True, ())
    with listener, seqpacket.connect(path, timeout_seconds=10) as client:
        taken = []
        for one in (packet, ORDERS.encode(SendSignal(15))):
            client.send(one)
            for _ in range(2):
                for fd, events in poller.poll(0):
                    taken += control.handle(fd, events)
        for connection in control._server.connections.values():
            connection.close()
        assert EVENTS.decode(client.recv(4096)) == control.greeting
    assert taken == [SendSignal(15, group=False)]
    assert "a shim's order: cannot read" in capsys.readouterr().err
