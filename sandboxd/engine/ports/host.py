# SPDX-License-Identifier: Apache-2.0
"""The host: its time and its uids."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime:
        """The wall clock, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, the same for every process of this boot."""
        ...


class Uids(Protocol):
    """Host uids for sandboxes."""

    async def take(self, sandbox_id: str) -> int:
        """A uid that nobody else has. Raises CapacityExceeded."""
        ...

    async def give_back(self, uid: int) -> bool:
        """Free it once no process has it; False when one still does."""
        ...

    async def busy(self, uids: Collection[int]) -> Collection[int]:
        """Those of these uids that a process has; none where sandboxes have no uid of their own."""
        ...

    async def reclaim(self, uid: int, sandbox_id: str) -> None:
        """Hold again a uid taken by an earlier daemon."""
        ...

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Free what an earlier daemon took for sandboxes that are not among these."""
        ...
