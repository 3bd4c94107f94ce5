# SPDX-License-Identifier: Apache-2.0
"""Judge a sum of memory: cheap bounds at every look, the exact sum only where the bounds are open.

Resident sets count a page once for each process that maps the page, so their sum is an upper bound;
so is the sum of anonymous pages and all files in memory, where these are known. The largest
process's anonymous pages, with the files in memory, are a lower bound. Between the bounds only
proportional sets decide, at 30 ms a GiB. Proportional sets are read when the upper bounds exceed
the limit, and again only when growth may have used up half of the room, or after a second. Faults
count as growth, too: breaking copy-on-write adds memory that no resident set shows. The reading is
done in slices; a sandbox that may exceed the limit meanwhile is to be stopped until the sum is
known. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from sandboxd.supervisor.work import Work

_AGAIN_SECONDS = 1.0
_PAGE_BYTES = 4096
# Between exact looks at most a fifth of the time is spent looking, a half if urgent.
_DUTY = 4
# A sandbox whose sum stays unknown for longer is stopped.
PATIENCE_SECONDS = 0.25
_SLICE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class MemoryTotals:
    """The sums of one look, in bytes, and the number of faults.

    largest_bytes: the largest process's anonymous and shared memory, if read. without_files_bytes:
    all anonymous memory plus all files in memory, if all of these files are known.
    """

    resident_bytes: int
    largest_anonymous_bytes: int
    file_bytes: int
    faults: int
    largest_bytes: int = 0
    without_files_bytes: int | None = None

    @property
    def upper_bytes(self) -> int:
        """An upper bound of the memory used."""
        return self.resident_bytes + self.file_bytes

    @property
    def lower_bytes(self) -> int:
        """A lower bound of the memory used."""
        return max(self.largest_anonymous_bytes + self.file_bytes, self.largest_bytes)


class MemoryGauge:
    """A limit and the memory used, as of the last look: exact where bounds did not decide."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._exact: int | None = None
        self._looked_at = 0.0
        self._took = 0.0
        # (resident sets, faults) when the exact sum was read, and when the current reading began.
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
        """Whether the limit is exceeded, as far as known.

        measure: reads the exact sum, in steps, for about slice_seconds at this call.
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
        # A sandbox that may exceed the limit by now is measured sooner.
        if age < self._took * (_DUTY if came <= room else 1):
            return False
        return came > room // 2 or age >= _AGAIN_SECONDS

    def _room(self) -> int:
        return self.limit_bytes - (self._exact or 0)

    def _came(self, sums: MemoryTotals) -> int:
        upper, faults = self._then
        return max(sums.upper_bytes - upper, (sums.faults - faults) * _PAGE_BYTES)

    def room_bytes(self) -> int:
        """Return the bytes left before the limit, as of the last look."""
        return max(0, self.limit_bytes - self.used_bytes)
