# SPDX-License-Identifier: Apache-2.0
"""Events over restarts of the daemon, in a time of our own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sandboxd.client import sse
from sandboxd.client.blocking import iterate
from sandboxd.client.refusals import ConnectionLost, DaemonUnreachable, closed
from sandboxd.client.request import RESTART_SECONDS, Request


class Daemon:
    """One that answers each connection by the next of `answers`; pieces, errors and pauses.

    Fits Flows. asked: the last id of each connection.
    """

    def __init__(self, *answers: list[Any]) -> None:
        self.now = 1000.0
        self.asked: list[str] = []
        self._answers = list(answers)
        self.transport = self.waits = self

    def request(self, last_id: str) -> Request:
        self.asked.append(last_id)
        return Request("GET", "/")

    async def open(self, request: Request) -> Any:
        steps = self._answers.pop(0) if self._answers else [unreachable()]
        if isinstance(steps[0], DaemonUnreachable):
            raise steps[0]

        async def piece() -> bytes:
            while steps:
                step = steps.pop(0)
                if isinstance(step, float):
                    self.now += step
                elif isinstance(step, Exception):
                    raise step
                else:
                    return bytes(step)
            return b""

        return SimpleNamespace(piece=piece, close=lambda: None)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def unreachable() -> DaemonUnreachable:
    return DaemonUnreachable("/nowhere", 2)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The data of all events up to the error that ends them, which comes last."""

    def told(daemon: Daemon, *, has_end: bool) -> list[str]:
        clock = SimpleNamespace(monotonic=lambda: daemon.now)
        monkeypatch.setattr("sandboxd.client.request.time", clock)
        found: list[str] = []
        flows: Any = daemon
        try:
            followed = iterate(sse.flow(flows, daemon.request, "", has_end=has_end))
            found.extend(event.data for event in followed)
        except (ConnectionLost, DaemonUnreachable) as exc:
            found.append(type(exc).__name__)
        return found

    return told


ONE, TWO = b"id: a-1\ndata: one\n\n", b"id: a-2\ndata: two\n\n"
AWHILE = 3 * RESTART_SECONDS


def test_a_restart_is_waited_out_however_late_it_comes(events: Callable[..., list[str]]) -> None:
    daemon = Daemon([ONE, AWHILE, closed()], [unreachable()], [TWO, AWHILE])
    assert events(daemon, has_end=False) == ["one", "two", "DaemonUnreachable"]
    assert daemon.asked[:4] == ["", "a-1", "a-1", "a-2"]
    assert daemon.now == pytest.approx(1000 + 2 * AWHILE + RESTART_SECONDS, abs=1.0)


def test_a_daemon_never_reached_is_not_waited_for(events: Callable[..., list[str]]) -> None:
    daemon = Daemon()
    assert events(daemon, has_end=False) == ["DaemonUnreachable"]
    assert daemon.now == 1000.0


def test_one_that_is_known_is_waited_for(events: Callable[..., list[str]]) -> None:
    daemon = Daemon([unreachable()], [ONE])
    assert events(daemon, has_end=True) == ["one"]
    assert daemon.asked == ["", ""]


def test_an_id_lasts_over_connections_without_one(events: Callable[..., list[str]]) -> None:
    daemon = Daemon([ONE, closed()], [b"data: gap\n\n", closed()], [TWO])
    assert events(daemon, has_end=True) == ["one", "gap", "two"]
    assert daemon.asked == ["", "a-1", "a-1"]
