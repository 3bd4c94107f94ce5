# SPDX-License-Identifier: Apache-2.0
"""Work that a sandbox can make arbitrarily long, done in slices so that no sandbox waits.

Pure; the caller has the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class Work(Generic[T]):
    """Work done in steps: a generator that yields often and returns the result.

    seconds: the time taken so far.
    """

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
