# SPDX-License-Identifier: Apache-2.0
"""What one caller may have of something that callers share, and of which there is a bounded sum.

Half of each sum is kept for callers that have little of it. Of the other half a caller has at most
half of what the others leave: many greedy callers still leave something for the next one, and who
has little is not refused for what they hold. Root's own sum is as large, and apart: others do not
keep root out, nor does root keep out others. Nothing is taken back from who has it.
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
    """total: what callers may have together. little: what each of them may have whatever greedy
    ones do, where at most total / 2 / little callers have so much. most: of one caller."""

    total: int
    little: int
    most: int

    def share(self, others: int) -> int:
        """The most that a caller may have while others have so much."""
        greedy = min(self.most, (self.total // 2 - others) // 2)
        return max(0, greedy, min(self.little, self.total - others))


class Holdings:
    """How much of a sum each caller has, and of each part of the sum (an execution, a sandbox)."""

    def __init__(
        self, of: FairSum, quota: str, *, verb: str, hint: str, most_of_part: int | None = None
    ) -> None:
        """quota: what is counted. verb: what a caller cannot do who is refused more. hint: how that
        caller gets room. most_of_part: of one caller, root as well."""
        self._sum = of
        self._quota = quota
        self._verb = verb
        self._hint = hint
        self._most_of_part = of.total if most_of_part is None else most_of_part
        self._held: Counter[int] = Counter()
        self._parts: Counter[tuple[int, str]] = Counter()
        self._of_callers = 0

    def share(self, uid: int) -> int:
        """The most that a caller may have now."""
        if uid == _ROOT:
            return self._sum.total
        return self._sum.share(self._of_callers - self._held[uid])

    def held(self, uid: int) -> int:
        """How much a caller has."""
        return self._held[uid]

    def take(self, uid: int, size: int = 1) -> None:
        """Have so much more. Raises QuotaExceeded."""
        used = self._held[uid]
        if used + size > self.share(uid):
            most = self._sum.total if uid == _ROOT else self._sum.most
            why = "all it may have" if used + size > most else "its share beside what others have"
            raise self._refusal(uid, f"{self._quota}, which is {why}", used, size, most)
        self._count(uid, size)

    def give_back(self, uid: int, size: int = 1) -> None:
        """Have so much less."""
        self._count(uid, -size)

    @contextmanager
    def one(self, uid: int, part: str) -> Iterator[None]:
        """Have one more of a part meanwhile. Raises QuotaExceeded."""
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
        # What others have is not told: not even by the share.
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
