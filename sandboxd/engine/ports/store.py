# SPDX-License-Identifier: Apache-2.0
"""What outlives the daemon: records, history, keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sandboxd.core.model import Execution, Sandbox
from sandboxd.core.totals import SavedHistory


class Store(Protocol):
    """Records of sandboxes and executions on disk."""

    async def save_sandbox(self, sandbox: Sandbox) -> None:
        """Write whole or not at all. Raises HostDiskFull, HostStorageFailed."""
        ...

    async def save_execution(self, execution: Execution) -> None:
        """Write whole or not at all. Raises HostDiskFull, HostStorageFailed."""
        ...

    async def save_draining(self, draining: bool) -> None:
        """Whether the host takes no new work. Raises HostDiskFull, HostStorageFailed."""
        ...

    async def load_draining(self) -> bool:
        """What was saved last."""
        ...

    async def load(self) -> list[tuple[Sandbox, list[Execution]]]:
        """Everything that is there; unreadable records are reported and set aside."""
        ...


class HistoryStore(Protocol):
    """The history on disk."""

    async def load(self) -> SavedHistory | None:
        """What was saved; None where that is nothing or cannot be read, which is reported."""
        ...

    async def save(self, past: SavedHistory) -> None:
        """Add its intervals, all of them or none; the oldest above the bound go. Raises
        HostDiskFull."""
        ...


@dataclass(frozen=True, slots=True)
class KeptKey:
    """An Idempotency-Key of one caller. status: of the first answer, None while there is none.

    at: when it came, then when it was answered, in seconds of the wall clock.
    """

    uid: int
    name: str
    fingerprint: str
    request_id: str
    at: float
    status: int | None = None
    size_bytes: int = 0
