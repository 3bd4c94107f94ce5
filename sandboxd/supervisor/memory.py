# SPDX-License-Identifier: Apache-2.0
"""Judges a sum of memory: cheap bounds at every look, the exact sum only where they leave it open.

Resident sets count a page once for each process that maps it, so their sum is an upper bound.
The largest process's anonymous pages, with the shared memory files, are a lower bound. Between
them only proportional sets tell, which cost 30 ms a GiB: they are read when the upper bound is
over the limit, and again only when as much may have come as there was room for, or after a second.
Faults count as growth too: breaking copy-on-write adds memory that no resident set shows. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_AGAIN_SECONDS = 1.0
_PAGE_BYTES = 4096
# Of the time between two exact looks at most a fifth is spent looking, a half if it is urgent.
_DUTY = 4


@dataclass(frozen=True, slots=True)
class Sums:
    """One look: resident sets, the largest process's anonymous part, files in memory, faults;
    the largest process's anonymous and shared memory, where somebody looked."""

    resident_bytes: int
    largest_anonymous_bytes: int
    file_bytes: int
    faults: int
    largest_bytes: int = 0

    @property
    def upper_bytes(self) -> int:
        """At most this much is used."""
        return self.resident_bytes + self.file_bytes

    @property
    def lower_bytes(self) -> int:
        """At least this much is used."""
        return max(self.largest_anonymous_bytes + self.file_bytes, self.largest_bytes)


class MemoryGauge:
    """One limit. `used_bytes` is what the last look found: exact where it mattered."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._exact: int | None = None
        self._looked_at = 0.0
        self._took = 0.0
        self._upper_then = 0
        self._faults_then = 0

    def is_over(self, sums: Sums, measure: Callable[[], int], clock: Callable[[], float]) -> bool:
        """Whether the limit is passed. measure: reads the exact sum now."""
        if sums.upper_bytes <= self.limit_bytes:
            self._exact = None
            self.used_bytes = sums.upper_bytes
            return False
        if sums.lower_bytes > self.limit_bytes:
            self.used_bytes = sums.lower_bytes
            return True
        now = clock()
        if self._exact is None or self._is_stale(sums, now):
            self._exact = measure()
            self._looked_at = clock()
            self._took = self._looked_at - now
            self._upper_then, self._faults_then = sums.upper_bytes, sums.faults
        self.used_bytes = self._exact
        return self._exact > self.limit_bytes

    def _is_stale(self, sums: Sums, now: float) -> bool:
        age = now - self._looked_at
        room = self.limit_bytes - (self._exact or 0)
        grown = sums.upper_bytes - self._upper_then
        faulted = (sums.faults - self._faults_then) * _PAGE_BYTES
        came = max(grown, faulted)
        # Who may be over by now is looked at sooner.
        if age < self._took * (_DUTY if came <= room else 1):
            return False
        return came > room // 2 or age >= _AGAIN_SECONDS

    def room_bytes(self) -> int:
        """How much may come before the limit, by the last look."""
        return max(0, self.limit_bytes - self.used_bytes)
