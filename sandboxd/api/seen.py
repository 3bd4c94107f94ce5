# SPDX-License-Identifier: Apache-2.0
"""Counts requests by method, status, error code and duration; the number of sums is bounded."""

from __future__ import annotations

from collections import Counter

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
BUCKETS_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class Seen:
    """Counts of answers since this daemon started. Durations include waits for executions."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.refusals: Counter[str] = Counter()
        # The last slot is for all longer durations.
        self.durations = [0] * (len(BUCKETS_SECONDS) + 1)
        self.seconds = 0.0

    def answer(self, method: str, status: int, seconds: float) -> None:
        """Count an answer that took so many seconds."""
        self.answers[method if method in _METHODS else "other", status] += 1
        self.seconds += seconds
        slot = sum(seconds > bound for bound in BUCKETS_SECONDS)
        self.durations[slot] += 1

    def refusal(self, code: str) -> None:
        """Count an error's code."""
        self.refusals[code] += 1
