# SPDX-License-Identifier: Apache-2.0
"""Sums of usage, ends and refusals over owners and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

# Owners per interval; further owners are summed up as OTHERS.
MAX_OWNERS = 64
# The key of the sum of further owners.
OTHERS = -1
GAINS = ("cpu_seconds", "io_read_bytes", "io_written_bytes")


@dataclass(slots=True)
class UsageTotals:
    """Sums of an owner and interval, or of many; None = unknown.

    memory_bytes, executions: the highest simultaneous values seen. All further fields: sums over
    the interval.
    """

    cpu_seconds: float | None = None
    io_read_bytes: float | None = None
    io_written_bytes: float | None = None
    memory_bytes: int | None = None
    executions: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def gain(self, name: str, value: float | None) -> None:
        """Add a value to a sum."""
        if value is not None:
            setattr(self, name, (getattr(self, name) or 0) + max(0, value))

    def saw(self, executions: int, memory_bytes: int | None) -> None:
        """Raise the highest values by a sample."""
        self.executions = max(self.executions, executions)
        if memory_bytes is not None:
            self.memory_bytes = max(self.memory_bytes or 0, memory_bytes)

    def add(self, other: UsageTotals, *, beside: bool) -> None:
        """Add further totals. beside: of the same time, so that simultaneous values add up."""
        for name in GAINS:
            self.gain(name, getattr(other, name))
        self.ended += other.ended
        self.refused += other.refused
        if beside:
            self.executions += other.executions
            if other.memory_bytes is not None:
                self.memory_bytes = (self.memory_bytes or 0) + other.memory_bytes
        else:
            self.saw(other.executions, other.memory_bytes)


@dataclass(frozen=True, slots=True)
class Interval:
    """Totals by owner from `begun` (wall clock) on; OTHERS has the owners above MAX_OWNERS."""

    begun: datetime
    by_owner: dict[int, UsageTotals] = field(default_factory=dict)

    def owner(self, uid: int) -> UsageTotals:
        """Return the totals of an owner to add to."""
        if uid not in self.by_owner and len(self.by_owner) >= MAX_OWNERS:
            uid = OTHERS
        return self.by_owner.setdefault(uid, UsageTotals())


# (sandbox id, execution id) -> usage counted so far, in the order of GAINS.
Counted = Mapping[tuple[str, str], Sequence[float]]


@dataclass(frozen=True, slots=True)
class SavedHistory:
    """Closed intervals, oldest first, and the counted usage of the executions then running."""

    known_since: datetime
    intervals: Sequence[Interval]
    counted: Counted


@dataclass(frozen=True, slots=True)
class Period:
    """The part of the history that a caller may see. by_owner: OTHERS for admins alone."""

    since: datetime
    until: datetime
    known_since: datetime
    interval_seconds: float
    points: list[tuple[datetime, UsageTotals]]
    by_owner: Mapping[int, UsageTotals]
