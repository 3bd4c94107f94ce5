# SPDX-License-Identifier: Apache-2.0
"""How many streams may be open at once: each is a connection that lives as long as an execution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.errors import QuotaExceeded

# Root is bounded by the sum alone, so that no other caller can keep it out.
MAX_OF_EXECUTION = 256
MAX_OF_CALLER = 512
MAX_IN_ALL = 1024


class Streams:
    """Counts the open streams of an execution, of a caller and of all."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._count = 0

    @contextmanager
    def one(self, uid: int, execution_id: str) -> Iterator[None]:
        """Hold a place. Raises QuotaExceeded."""
        caller, execution = f"uid {uid}", f"execution {execution_id}"
        self._check(execution, MAX_OF_EXECUTION)
        if uid != 0:
            self._check(caller, MAX_OF_CALLER)
        if self._count >= MAX_IN_ALL:
            raise _refusal("this daemon", MAX_IN_ALL)
        self._count += 1
        self._open.update((caller, execution))
        try:
            yield
        finally:
            self._count -= 1
            self._open.subtract((caller, execution))
            # Without those of which none is left.
            self._open = +self._open

    def _check(self, who: str, maximum: int) -> None:
        if self._open[who] >= maximum:
            raise _refusal(who, maximum)


def _refusal(who: str, maximum: int) -> QuotaExceeded:
    return QuotaExceeded(
        f"cannot open another stream: {who} has {maximum} open already",
        hint="close one that nobody reads",
        details={"maximum_streams": maximum},
    )
