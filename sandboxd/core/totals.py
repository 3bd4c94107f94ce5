# SPDX-License-Identifier: Apache-2.0
"""What was used, how executions ended and what was refused, summed up over owners and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

# In one interval; what more owners did is kept without saying whose it was.
MAX_OWNERS = 64
# The owner of that.
OTHERS = -1
GAINS = ("cpu_seconds", "io_read_bytes", "io_written_bytes")


@dataclass(slots=True)
class UsageTotals:
    """Of one owner and interval, or of many; None = nothing of it is known.

    memory_bytes, executions: the most at once, as far as seen. The others: of the whole interval.
    """

    cpu_seconds: float | None = None
    io_read_bytes: float | None = None
    io_written_bytes: float | None = None
    memory_bytes: int | None = None
    executions: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def gain(self, name: str, value: float | None) -> None:
        """Add to one of the sums."""
        if value is not None:
            setattr(self, name, (getattr(self, name) or 0) + max(0, value))

    def saw(self, executions: int, memory_bytes: int | None) -> None:
        """What one look found."""
        self.executions = max(self.executions, executions)
        if memory_bytes is not None:
            self.memory_bytes = max(self.memory_bytes or 0, memory_bytes)

    def add(self, other: UsageTotals, *, beside: bool) -> None:
        """beside: of the same time, so that what is used at once adds up."""
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
    """`begun`: by the wall clock; by_owner: OTHERS are those for whom there was no room."""

    begun: datetime
    by_owner: dict[int, UsageTotals] = field(default_factory=dict)

    def owner(self, uid: int) -> UsageTotals:
        """The sums to add to."""
        if uid not in self.by_owner and len(self.by_owner) >= MAX_OWNERS:
            uid = OTHERS
        return self.by_owner.setdefault(uid, UsageTotals())


# Sandbox and execution -> what of it is in the sums, in the order of GAINS.
Counted = Mapping[tuple[str, str], Sequence[float]]


@dataclass(frozen=True, slots=True)
class SavedHistory:
    """Whole intervals, oldest first, and what was counted of each execution that then ran."""

    known_since: datetime
    intervals: Sequence[Interval]
    counted: Counted


@dataclass(frozen=True, slots=True)
class Period:
    """What a caller may see of a time: by_owner has OTHERS for admins alone."""

    since: datetime
    until: datetime
    known_since: datetime
    interval_seconds: float
    points: list[tuple[datetime, UsageTotals]]
    by_owner: Mapping[int, UsageTotals]
