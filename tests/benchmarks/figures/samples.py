# SPDX-License-Identifier: Apache-2.0
"""Times taken in turns, so that what else the host does falls on all ways alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Way = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Spread:
    """One way's times, in milliseconds."""

    p50: float
    p99: float
    count: int


def spread(milliseconds: list[float]) -> Spread:
    """milliseconds: two or more."""
    p99 = statistics.quantiles(milliseconds, n=100, method="inclusive")[98]
    return Spread(round(statistics.median(milliseconds), 3), round(p99, 3), len(milliseconds))


def milliseconds(way: Way) -> float:
    begun = time.perf_counter()
    way()
    return (time.perf_counter() - begun) * 1000


def interleaved(ways: Mapping[str, Way], rounds: int) -> dict[str, Spread]:
    """Do every way once a round, after one round that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            took = milliseconds(way)
            if number:
                taken[name].append(took)
    return {name: spread(values) for name, values in taken.items()}


def ratios(spreads: Mapping[str, Spread], base: str) -> dict[str, float]:
    """Medians as multiples of the median of `base`."""
    return {name: round(each.p50 / spreads[base].p50, 3) for name, each in spreads.items()}
