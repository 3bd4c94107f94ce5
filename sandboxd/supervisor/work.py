# SPDX-License-Identifier: Apache-2.0
"""Slices of work that a sandbox can make arbitrarily long. Pure; the caller has the clock."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class Work(Generic[T]):
    """A generator that yields often and returns a result. seconds: the time taken so far."""

    def __init__(self, steps: Generator[None, None, T]) -> None:
        self._steps = steps
        self.seconds = 0.0
        self.result: T | None = None

    def go_on(self, seconds: float, clock: Callable[[], float]) -> bool:
        """Run one slice of about `seconds`; return whether the work is complete."""
        began = now = clock()
        try:
            while now - began < seconds:
                next(self._steps)
                now = clock()
        except StopIteration as end:
            self.result = end.value
            self.seconds += clock() - began
            return True
        self.seconds += now - began
        return False
