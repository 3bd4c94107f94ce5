# SPDX-License-Identifier: Apache-2.0
"""What is there, what was called, and which call breaks."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sandboxd.core.model import SandboxUsage
from sandboxd.core.outcome import Facts
from tests.unit.values import NOW

if TYPE_CHECKING:
    from tests.unit.engine.fakes.shims import FakeShim


class Broken(Exception):
    """The fault a test asked for."""


class World:
    """What is there, and which call breaks."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.calls: list[str] = []
        self.breaks: str | None = None
        self.stuck_uids: set[int] = set()
        self.shims: dict[str, FakeShim] = {}
        self.records: dict[str, Facts] = {}
        self.seconds = 1000.0
        self.memory_used: int | None = None
        self.full = False
        self.usage = SandboxUsage()
        self.disk_limits: dict[int, int] = {}
        self.disk_used = 0
        self.disk_obstacle: str | None = None
        self.disk_held = False
        self.disk_growth = 0
        self.disk_seconds = 0.0
        # Sandboxes of which a count does not end before it is told to.
        self.disk_slow: dict[str, asyncio.Event] = {}
        self.free_bytes = 1 << 40
        self.floor_bytes = 1 << 30
        self.spools: dict[str, int] = {}

    def call(self, name: str) -> None:
        """Write a call down; break if it is the one that shall."""
        self.calls.append(name)
        if name == self.breaks:
            raise Broken(name)

    # -- ports.host.Clock

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds
