# SPDX-License-Identifier: Apache-2.0
"""The ports for data that outlives the daemon: records, history, keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sandboxd.core.model import Execution, Sandbox
from sandboxd.core.totals import SavedHistory


class Store(Protocol):
    """Records of sandboxes and executions on disk."""

    async def save_sandbox(self, sandbox: Sandbox) -> None:
        """Save a record atomically. Raises HostDiskFull, HostStorageFailed."""

    async def save_execution(self, execution: Execution) -> None:
        """Save a record atomically. Raises HostDiskFull, HostStorageFailed."""

    async def save_draining(self, draining: bool) -> None:
        """Save whether the host is drained. Raises HostDiskFull, HostStorageFailed."""

    async def load_draining(self) -> bool:
        """Return the saved value."""

    async def load(self) -> list[tuple[Sandbox, list[Execution]]]:
        """Return all records; unreadable records are logged and set aside."""


class HistoryStore(Protocol):
    """The history on disk."""

    async def load(self) -> SavedHistory | None:
        """Return the saved history; None if absent or unreadable (logged)."""

    async def save(self, past: SavedHistory) -> None:
        """Add the intervals atomically; drop the oldest above the bound. Raises HostDiskFull."""


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A caller's Idempotency-Key.

    status: status of the first answer; None while pending. at: time of the request, then of the
    answer, in seconds of the wall clock.
    """

    uid: int
    name: str
    fingerprint: str
    request_id: str
    at: float
    status: int | None = None
    size_bytes: int = 0
