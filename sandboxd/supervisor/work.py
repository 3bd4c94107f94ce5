# SPDX-License-Identifier: Apache-2.0
"""Work that one sandbox can make as long as it likes: done in slices, so that nobody waits for it.

Pure; the caller has the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class Work(Generic[T]):
    """steps: yields often, its value is the result. seconds: what it took so far."""

    def __init__(self, steps: Generator[None, None, T]) -> None:
        self._steps = steps
        self.seconds = 0.0
        self.result: T | None = None

    def go_on(self, seconds: float, clock: Callable[[], float]) -> bool:
        """One slice of that length; whether all is done."""
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
