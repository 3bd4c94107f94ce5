# SPDX-License-Identifier: Apache-2.0
"""A token bucket: how much of something was allowed so far. Pure; the caller has the clock."""

from __future__ import annotations

_BURST_SECONDS = 0.1


class TokenBucket:
    """Fills at `rate` a second up to a tenth of a second's worth; what is taken may leave a debt,
    and a debt is paid before anything more is allowed, so that the average is exact."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self.level = self.capacity
        self._filled_at = now

    @property
    def capacity(self) -> float:
        """The most it holds."""
        return self.rate * _BURST_SECONDS

    @property
    def is_overdrawn(self) -> bool:
        """Whether more was taken than allowed."""
        return self.level < 0

    @property
    def is_full(self) -> bool:
        """Whether next to nothing was taken lately."""
        return self.level >= self.capacity * 0.9

    @property
    def seconds_of_debt(self) -> float:
        """How long it takes until the debt is paid."""
        return max(0.0, -self.level / self.rate)

    def advance(self, now: float, taken: float) -> None:
        """Fill for the time gone by, then take."""
        filled = self.level + self.rate * max(0.0, now - self._filled_at)
        self.level = min(self.capacity, filled) - taken
        self._filled_at = now

    def set_rate(self, rate: float) -> None:
        """From now on at another rate; a debt stays as many seconds long as it was."""
        if rate != self.rate:
            self.level *= rate / self.rate
            self.rate = rate
