# SPDX-License-Identifier: Apache-2.0
"""Scans go in turn: nobody waits for another's long one."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from sandboxd.supervisor.files import Walker, memfd_device
from sandboxd.supervisor.scan import Scan, Scanner


class Clock:
    """Time passes as told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Sandbox:
    """steps: of a scan, a tenth of a millisecond each."""

    def __init__(self, clock: Clock, steps: int) -> None:
        self.scan = Scan(0, 0.0)
        self.steps = steps
        self.room_bytes = 1 << 40
        self.completed = 0
        self._clock = clock

    def scan_steps(self, walker: Walker, now: float) -> Generator[None, None, None]:
        for _ in range(self.steps):
            self._clock.now += 0.0001
            yield

    def judge_soon(self) -> None:
        self.completed += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_short_ones_are_done_in_the_first_turn(clock: Clock) -> None:
    scanner = Scanner(memfd_device(), clock)
    long, short = Sandbox(clock, 1_000_000), [Sandbox(clock, 3) for _ in range(20)]
    scanner.take_turn(clock.now, [long, *short])
    assert [one.completed for one in short] == [1] * 20
    assert long.scan.work is not None
    assert not long.scan.is_long(clock.now)
    # And rests for four times as long as the turn took.
    took = clock.now - 100.0
    assert took < 0.011
    assert scanner.due([long]) == pytest.approx(clock.now + 4 * took)
    scanner.take_turn(clock.now, [long])
    assert clock.now == 100.0 + took


def test_one_that_takes_long_is_known_to_and_comes_seldom(clock: Clock) -> None:
    scanner = Scanner(memfd_device(), clock)
    long = Sandbox(clock, 2000)
    while not long.completed:
        scanner.take_turn(clock.now, [long])
        clock.now = scanner.due([long]) or clock.now
        assert clock.now < 103
    assert long.scan.is_long(clock.now)
    assert not long.scan.may_begin(clock.now + 1, is_urgent=False)
    assert long.scan.may_begin(clock.now + 1, is_urgent=True)
    long.steps = 1
    scanner.scan_now(clock.now, long)
    assert long.completed == 2
    # Short for once, as it is while all stand still.
    assert long.scan.is_long(clock.now)
    assert not long.scan.is_long(clock.now + 60)


def nothing() -> Generator[None, None, None]:
    yield from ()


def test_what_came_since_the_last_complete_one_began_is_unseen(clock: Clock) -> None:
    scan = Scan(1000, 0.0)
    assert scan.unseen(1500) == 500
    scan.begin(nothing(), 1400)
    assert scan.unseen(1500) == 500
    assert scan.go_on(1.0, clock)
    assert scan.unseen(1500) == 100
    # What another gives back hides nothing that comes afterwards.
    scan.note_fall(200)
    assert scan.unseen(700) == 500
