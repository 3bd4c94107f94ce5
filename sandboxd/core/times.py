# SPDX-License-Identifier: Apache-2.0
"""When output came."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class OutputTimes:
    """Of one stream: what begins at a byte of `offsets` came so many `seconds` after the start or
    later, by less than the precision and before what begins at the next one."""

    started_at: datetime
    precision_seconds: float
    offsets: Sequence[int]
    seconds: Sequence[float]

    def at(self, offset: int) -> datetime | None:
        """When the byte there came; None where nobody knows."""
        after = bisect_right(self.offsets, offset)
        return None if after == 0 else self._moment(self.seconds[after - 1])

    def since(self, moment: datetime) -> int | None:
        """The first byte that may have come at `moment` or later; None = none has."""
        index = bisect_right(range(len(self.offsets)), moment, key=self._latest)
        return None if index == len(self.offsets) else self.offsets[index]

    def cuts(self, begin: int, end: int) -> Iterator[int]:
        """The offsets between `begin` and `end` at which another time begins."""
        for index in range(bisect_right(self.offsets, begin), len(self.offsets)):
            if self.offsets[index] >= end:
                return
            yield self.offsets[index]

    def _latest(self, index: int) -> datetime:
        """Before which time all that belongs to an entry came."""
        latest = self.seconds[index] + self.precision_seconds
        if index + 1 < len(self.seconds):
            latest = min(latest, self.seconds[index + 1])
        return self._moment(latest)

    def _moment(self, seconds: float) -> datetime:
        return self.started_at + timedelta(seconds=seconds)
