# SPDX-License-Identifier: Apache-2.0
"""Bounds the number of open streams: connections that last as long as an execution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sandboxd.core.fair import FairSum, Holdings
from sandboxd.errors import QuotaExceeded

OF_ALL = FairSum(total=2048, little=8, most=512)
# Followers of an execution, of one caller: each follower wakes at every piece of output.
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
        """Count a stream while the context is open. Raises QuotaExceeded.

        what: the execution's id, or a description of the followed events.
        """
        with ExitStack() as place:
            try:
                place.enter_context(self._held.one(uid, what))
            except QuotaExceeded as exc:
                exc.details["maximum_streams"] = exc.details["maximum"]
                raise
            yield
