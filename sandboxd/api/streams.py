# SPDX-License-Identifier: Apache-2.0
"""How many streams may be open at once: each is a connection that lives as long as an execution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sandboxd.core.fair import FairSum, Holdings
from sandboxd.errors import QuotaExceeded

OF_ALL = FairSum(total=2048, little=8, most=512)
# Of one caller: each wakes at every piece of output.
MAX_OF_EXECUTION = 256


class Streams:
    """Counts the open streams of each caller."""

    def __init__(self) -> None:
        self._held = Holdings(
            OF_ALL,
            "streams",
            verb="open another stream",
            hint="close one that nobody reads",
            most_of_part=MAX_OF_EXECUTION,
        )

    @contextmanager
    def one(self, uid: int, what: str) -> Iterator[None]:
        """Hold a place. what: the execution, or what else is followed. Raises QuotaExceeded."""
        with ExitStack() as place:
            try:
                place.enter_context(self._held.one(uid, what))
            except QuotaExceeded as exc:
                exc.details["maximum_streams"] = exc.details["maximum"]
                raise
            yield
