# SPDX-License-Identifier: Apache-2.0
"""Fair shares of a bounded sum among callers.

Half of a sum is reserved for callers with little. Of the second half a caller gets at most half of
the part left by all further callers: many greedy callers still leave room for the next caller, and
a caller with little is never refused because of greedy callers. Root has a separate sum of the same
size, so that root and the rest cannot exclude each other. No share is taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandboxd.errors import QuotaExceeded

_ROOT = 0


@dataclass(frozen=True, slots=True)
class FairSum:
    """A bounded sum.

    total: all callers together. little: guaranteed to each caller, for at most total / 2 / little
    callers. most: upper bound per caller.
    """

    total: int
    little: int
    most: int

    def share(self, others: int) -> int:
        """Return the most that a caller may have while all further callers have `others`."""
        greedy = min(self.most, (self.total // 2 - others) // 2)
        return max(0, greedy, min(self.little, self.total - others))


class Holdings:
    """The use of a sum per caller and per part of a caller (an execution, a sandbox)."""

    def __init__(
        self, of: FairSum, quota: str, *, verb: str, hint: str, most_of_part: int | None = None
    ) -> None:
        """Set the texts of a refusal.

        quota: the counted objects. verb: the refused action. hint: how the caller gets room.
        most_of_part: upper bound per part, for root too.
        """
        self._sum = of
        self._quota = quota
        self._verb = verb
        self._hint = hint
        self._most_of_part = of.total if most_of_part is None else most_of_part
        self._held: Counter[int] = Counter()
        self._parts: Counter[tuple[int, str]] = Counter()
        self._of_callers = 0

    def share(self, uid: int) -> int:
        """Return the most that a caller may have now."""
        if uid == _ROOT:
            return self._sum.total
        return self._sum.share(self._of_callers - self._held[uid])

    def take(self, uid: int, size: int = 1) -> None:
        """Add `size` to a caller's use. Raises QuotaExceeded."""
        used = self._held[uid]
        if used + size > self.share(uid):
            most = self._sum.total if uid == _ROOT else self._sum.most
            why = "all it may have" if used + size > most else "its share beside what others have"
            raise self._refusal(uid, f"{self._quota}, which is {why}", used, size, most)
        self._count(uid, size)

    def give_back(self, uid: int, size: int = 1) -> None:
        """Subtract `size` from a caller's use."""
        self._count(uid, -size)

    @contextmanager
    def one(self, uid: int, part: str) -> Iterator[None]:
        """Hold one unit of a part while entered. Raises QuotaExceeded."""
        key = uid, part
        used, most = self._parts[key], self._most_of_part
        if used >= most:
            what = f"{self._quota} of {part}, which is all it may have"
            raise self._refusal(uid, what, used, 1, most)
        self.take(uid)
        self._parts[key] += 1
        try:
            yield
        finally:
            self.give_back(uid)
            self._parts[key] -= 1
            if not self._parts[key]:
                del self._parts[key]

    def _refusal(self, uid: int, what: str, used: int, asked: int, maximum: int) -> QuotaExceeded:
        # The text hides the use of further callers, so the share is not shown.
        return QuotaExceeded(
            f"cannot {self._verb}: uid {uid} has {used} {what}",
            hint=self._hint,
            details={"quota": self._quota, "maximum": maximum, "used": used, "asked": asked},
        )

    def _count(self, uid: int, size: int) -> None:
        self._held[uid] += size
        if not self._held[uid]:
            del self._held[uid]
        if uid != _ROOT:
            self._of_callers += size
