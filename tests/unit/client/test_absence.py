# SPDX-License-Identifier: Apache-2.0
"""How long a daemon that is away is waited for, in a time of our own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sandboxd.client.refusals import DaemonUnreachable
from sandboxd.client.request import RESTART_SECONDS, Absence
from sandboxd.errors import Draining

UNREACHABLE = DaemonUnreachable("/nowhere", 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("sandboxd.client.request.time", clock)
    return clock


def test_one_that_stays_away_is_given_up(clock: SimpleNamespace) -> None:
    absence = Absence()
    absence.pause_seconds(UNREACHABLE)
    clock.now += RESTART_SECONDS - 1
    absence.pause_seconds(UNREACHABLE)
    clock.now += 2
    with pytest.raises(DaemonUnreachable):
        absence.pause_seconds(UNREACHABLE)


def test_one_that_stops_was_there_until_then(clock: SimpleNamespace) -> None:
    absence = Absence()
    for _ in range(3):
        absence.pause_seconds(Draining("stopping"))
        clock.now += 1
        absence.pause_seconds(UNREACHABLE)
        clock.now += 3 * RESTART_SECONDS
