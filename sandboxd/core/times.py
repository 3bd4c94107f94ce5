# SPDX-License-Identifier: Apache-2.0
"""Times of output."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class OutputTimes:
    """Arrival times of a stream's output.

    Bytes from offsets[i] on arrived at least seconds[i] after the start, less than
    precision_seconds later and before the time of the next entry.
    """

    started_at: datetime
    precision_seconds: float
    offsets: Sequence[int]
    seconds: Sequence[float]

    def at(self, offset: int) -> datetime | None:
        """Return the arrival time of the byte at `offset`; None if unknown."""
        after = bisect_right(self.offsets, offset)
        return None if after == 0 else self._moment(self.seconds[after - 1])

    def since(self, moment: datetime) -> int | None:
        """Return the first offset that may have arrived at `moment` or later; None if none has."""
        index = bisect_right(range(len(self.offsets)), moment, key=self._latest)
        return None if index == len(self.offsets) else self.offsets[index]

    def cuts(self, begin: int, end: int) -> Iterator[int]:
        """Yield the offsets between `begin` and `end` at which a new time begins."""
        for index in range(bisect_right(self.offsets, begin), len(self.offsets)):
            if self.offsets[index] >= end:
                return
            yield self.offsets[index]

    def _latest(self, index: int) -> datetime:
        """Return the latest arrival time of an entry's bytes."""
        latest = self.seconds[index] + self.precision_seconds
        if index + 1 < len(self.seconds):
            latest = min(latest, self.seconds[index + 1])
        return self._moment(latest)

    def _moment(self, seconds: float) -> datetime:
        return self.started_at + timedelta(seconds=seconds)
