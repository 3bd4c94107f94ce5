# SPDX-License-Identifier: Apache-2.0
"""Cheap bounds decide where they can; the exact sum is read only where they leave it open."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from sandboxd.supervisor.memory import MemoryGauge, MemoryTotals

LIMIT = 1000


@dataclass
class Meter:
    """Counts exact looks; time passes as told."""

    exact: int = 0
    looks: int = 0
    now: float = 100.0
    took: float = 0.0
    steps: int = 1
    gauge: MemoryGauge = field(default_factory=lambda: MemoryGauge(LIMIT))

    def measure(self) -> Generator[None, None, int]:
        self.looks += 1
        for _ in range(self.steps - 1):
            self.now += self.took
            yield
        self.now += self.took
        return self.exact

    def is_over(self, resident: int, *, largest: int = 0, files: int = 0, faults: int = 0) -> bool:
        sums = MemoryTotals(resident, largest, files, faults)
        return self.gauge.is_over(sums, self.measure, lambda: self.now)


def test_below_the_limit_nothing_is_measured() -> None:
    meter = Meter()
    assert not meter.is_over(LIMIT)
    assert (meter.looks, meter.gauge.used_bytes, meter.gauge.room_bytes()) == (0, LIMIT, 0)


@pytest.mark.parametrize(("largest", "files"), [(LIMIT + 1, 0), (LIMIT, 1), (0, LIMIT + 1)])
def test_one_process_and_files_alone_can_be_too_much(largest: int, files: int) -> None:
    meter = Meter()
    assert meter.is_over(LIMIT * 2, largest=largest, files=files)
    assert meter.looks == 0


def test_shared_pages_are_measured_before_anybody_is_killed() -> None:
    meter = Meter(exact=600)
    assert not meter.is_over(5000, largest=300)
    assert (meter.looks, meter.gauge.used_bytes) == (1, 600)
    meter.exact = LIMIT + 1
    meter.now += 1.0
    assert meter.is_over(5000, largest=300)


def test_it_is_measured_again_when_the_room_may_be_used_up() -> None:
    meter = Meter(exact=600)
    meter.is_over(5000)
    meter.is_over(5200)
    assert meter.looks == 1
    meter.is_over(5201)
    assert meter.looks == 2


def test_faults_without_growth_count_as_growth() -> None:
    """Breaking copy-on-write: the resident set stays, the sum of unshared pages grows."""
    meter = Meter(exact=600, gauge=MemoryGauge(LIMIT))
    meter.is_over(5000, faults=0)
    meter.is_over(5000, faults=1)
    assert meter.looks == 2


def test_it_is_measured_again_after_a_second() -> None:
    meter = Meter(exact=600)
    meter.is_over(5000)
    meter.now += 0.9
    meter.is_over(5000)
    assert meter.looks == 1
    meter.now += 0.2
    meter.is_over(5000)
    assert meter.looks == 2


def test_a_slow_look_is_not_repeated_at_once() -> None:
    meter = Meter(exact=600, took=0.1)
    meter.is_over(5000)
    meter.now += 0.3
    meter.is_over(5300)
    assert meter.looks == 1
    meter.now += 0.2
    meter.is_over(5300)
    assert meter.looks == 2


def test_a_slow_look_is_repeated_sooner_when_it_may_be_over_by_now() -> None:
    meter = Meter(exact=600, took=0.1)
    meter.is_over(5000)
    meter.now += 0.05
    meter.is_over(9000)
    assert meter.looks == 1
    meter.now += 0.1
    meter.is_over(9000)
    assert meter.looks == 2


def test_once_below_everything_is_forgotten() -> None:
    meter = Meter(exact=600)
    meter.is_over(5000)
    meter.is_over(500)
    assert meter.gauge.used_bytes == 500
    meter.is_over(5000)
    assert meter.looks == 2


def test_a_long_look_is_done_in_slices_and_nobody_runs_on_whose_sum_is_not_known() -> None:
    meter = Meter(exact=600, took=0.1, steps=10)
    assert not meter.is_over(5000, largest=300)
    assert (meter.now, meter.gauge.is_measuring, meter.gauge.is_blind) == (100.1, True, False)
    # A slice is not followed by another at once.
    assert not meter.is_over(5000, largest=300)
    assert meter.now == 100.1
    while meter.gauge.is_measuring:
        meter.now += 0.4
        before = meter.now
        assert not meter.is_over(5000, largest=300)
        assert meter.now - before < 0.11
        if meter.now > 102:
            assert meter.gauge.is_blind or not meter.gauge.is_measuring
    assert (meter.looks, meter.gauge.used_bytes, meter.gauge.is_blind) == (1, 600, False)


def test_a_long_look_again_stops_nobody_who_cannot_be_over() -> None:
    meter = Meter(exact=600)
    meter.is_over(5000)
    meter.took, meter.steps = 0.1, 10
    meter.now += 2.0
    for _ in range(5):
        meter.is_over(5100)
        meter.now += 0.5
        assert meter.gauge.is_measuring
        assert not meter.gauge.is_blind
    # Meanwhile more came than there was room for.
    meter.is_over(5600)
    assert meter.gauge.is_blind


def test_anonymous_parts_and_all_files_can_be_few_enough() -> None:
    meter = Meter()
    sums = MemoryTotals(5000, 300, 200, 0, without_files_bytes=LIMIT)
    assert not meter.gauge.is_over(sums, meter.measure, lambda: meter.now)
    assert (meter.looks, meter.gauge.used_bytes) == (0, LIMIT)
