# SPDX-License-Identifier: Apache-2.0
"""A token bucket: how much of a resource was allowed so far. Pure; the caller has the clock."""

from __future__ import annotations

_BURST_SECONDS = 0.1


class TokenBucket:
    """A bucket that fills at `rate` a second, up to a tenth of a second's worth.

    Taking may leave a debt, and the debt is paid before more is allowed, so that the average is
    exact.
    """

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self.level = self.capacity
        self._filled_at = now

    @property
    def capacity(self) -> float:
        """The greatest level."""
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
        """The seconds until the debt is paid; 0 without a debt."""
        return max(0.0, -self.level / self.rate)

    def advance(self, now: float, taken: float) -> None:
        """Fill for the time gone by, then take."""
        filled = self.level + self.rate * max(0.0, now - self._filled_at)
        self.level = min(self.capacity, filled) - taken
        self._filled_at = now

    def set_rate(self, rate: float) -> None:
        """Change the rate; a debt keeps the same number of seconds."""
        if rate != self.rate:
            self.level *= rate / self.rate
            self.rate = rate
