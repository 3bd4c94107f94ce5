# SPDX-License-Identifier: Apache-2.0
"""Judges a sum of memory: cheap bounds at every look, the exact sum only where they leave it open.

Resident sets count a page once for each process that maps it, so their sum is an upper bound; so is
that of anonymous pages with all files in memory, where these can be seen. The largest process's
anonymous pages, with the files in memory, are a lower bound. Between them only proportional sets
tell, which cost 30 ms a GiB: they are read when the upper bounds are over the limit, and again only
when as much may have come as there was room for, or after a second. Faults count as growth too:
breaking copy-on-write adds memory that no resident set shows. Reading them is long work, done in
slices; who may be over meanwhile is to stand still until it is known. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from sandboxd.supervisor.work import Work

_AGAIN_SECONDS = 1.0
_PAGE_BYTES = 4096
# Of the time between two exact looks at most a fifth is spent looking, a half if it is urgent.
_DUTY = 4
# Longer than this nobody runs on whose sum is not known.
PATIENCE_SECONDS = 0.25
_SLICE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class MemoryTotals:
    """One look: resident sets, the largest process's anonymous part, files in memory, faults;
    the largest process's anonymous and shared memory, where somebody looked; all anonymous parts
    with all files in memory, where all of these are seen."""

    resident_bytes: int
    largest_anonymous_bytes: int
    file_bytes: int
    faults: int
    largest_bytes: int = 0
    without_files_bytes: int | None = None

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
        # Resident sets and faults: when the exact sum was read, and when its reading now began.
        self._then = self._begun = (0, 0)
        self._work: Work[int] | None = None
        self._resume_at = 0.0
        self._may_be_over = False

    @property
    def is_blind(self) -> bool:
        """Whether the limit may be passed, and finding out takes long."""
        work = self._work
        return work is not None and work.seconds > PATIENCE_SECONDS and self._may_be_over

    @property
    def is_measuring(self) -> bool:
        """Whether an exact sum is being read."""
        return self._work is not None

    def is_over(
        self,
        sums: MemoryTotals,
        measure: Callable[[], Generator[None, None, int]],
        clock: Callable[[], float],
        slice_seconds: float = _SLICE_SECONDS,
    ) -> bool:
        """Whether the limit is passed, as far as that is known.

        measure: reads the exact sum, in steps; at most about slice_seconds of it are done now.
        """
        upper = sums.upper_bytes
        if sums.without_files_bytes is not None:
            upper = min(upper, sums.without_files_bytes)
        if upper <= self.limit_bytes:
            self._exact = self._work = None
            self.used_bytes = upper
            return False
        if sums.lower_bytes > self.limit_bytes:
            self.used_bytes = sums.lower_bytes
            return True
        now = clock()
        if self._work is None and (self._exact is None or self._is_stale(sums, now)):
            self._work = Work(measure())
            self._resume_at = now
            self._begun = (sums.upper_bytes, sums.faults)
        if self._work is not None and now >= self._resume_at:
            self._go_on(self._work, clock, slice_seconds)
        self._may_be_over = self._exact is None or self._came(sums) > self._room()
        self.used_bytes = sums.lower_bytes if self._exact is None else self._exact
        return self._exact is not None and self._exact > self.limit_bytes

    def _go_on(self, work: Work[int], clock: Callable[[], float], seconds: float) -> None:
        before = work.seconds
        is_done = work.go_on(seconds, clock)
        now = clock()
        if is_done:
            self._work = None
            self._exact, self._then = work.result, self._begun
            self._looked_at, self._took = now, work.seconds
        else:
            duty = 1 if self._may_be_over else _DUTY
            self._resume_at = now + (work.seconds - before) * duty

    def _is_stale(self, sums: MemoryTotals, now: float) -> bool:
        age = now - self._looked_at
        room = self._room()
        came = self._came(sums)
        # Who may be over by now is looked at sooner.
        if age < self._took * (_DUTY if came <= room else 1):
            return False
        return came > room // 2 or age >= _AGAIN_SECONDS

    def _room(self) -> int:
        return self.limit_bytes - (self._exact or 0)

    def _came(self, sums: MemoryTotals) -> int:
        upper, faults = self._then
        return max(sums.upper_bytes - upper, (sums.faults - faults) * _PAGE_BYTES)

    def room_bytes(self) -> int:
        """How much may come before the limit, by the last look."""
        return max(0, self.limit_bytes - self.used_bytes)
