# SPDX-License-Identifier: Apache-2.0
"""The ports for the host's time and uids."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The host's clocks."""

    def now(self) -> datetime:
        """Return the wall clock's time, UTC."""

    def monotonic(self) -> float:
        """Return monotonic seconds, equal for every process of this boot."""


class Uids(Protocol):
    """Host uids for sandboxes."""

    async def take(self, sandbox_id: str) -> int:
        """Return a uid that no account, live process or further sandbox has.

        Raises CapacityExceeded, HostDiskFull.
        """

    async def give_back(self, uid: int) -> bool:
        """Free a uid without processes; return False while a process still has the uid."""

    async def busy(self, uids: Collection[int]) -> Collection[int]:
        """Return the uids with processes; empty where sandboxes share the daemon's uid."""

    async def reclaim(self, uid: int, sandbox_id: str) -> None:
        """Hold a uid again that an earlier daemon took."""

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Free the uids that an earlier daemon took for sandboxes outside `sandbox_ids`."""
