# SPDX-License-Identifier: Apache-2.0
"""What is there, what was called, and which call breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sandboxd.core.model import Execution, Sandbox, SandboxUsage
from sandboxd.core.outcome import Facts
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.workspace.workers import Workers
from tests.unit.fakes.programs import Programs, endless
from tests.unit.values import NOW

if TYPE_CHECKING:
    from tests.unit.fakes.shims import FakeShim

STREAMS = ("stdout", "stderr")


class Broken(Exception):
    """The fault a test asked for."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Where sandboxes have real directories, for tests that use their files."""

    directory: str
    workers: Workers


@dataclass(slots=True)
class Record:
    """An execution's directory: spools, and who is told of each write."""

    sandbox_id: str
    spools: dict[str, bytearray] = field(
        default_factory=lambda: {stream: bytearray() for stream in STREAMS}
    )
    rings: list[Callable[[], None]] = field(default_factory=list)


class World:
    """What is there, and which call breaks.

    breaks: name of a call that raises `fault` (None = Broken), `breaks_left` times (None = always).
    gates: calls that do not go on before their event is set. disk_slow: sandboxes of which a count
    does not end before. more_printed: by execution, bytes of output that no test reads.
    """

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.calls: list[str] = []
        self.breaks: str | None = None
        self.fault: Exception | None = None
        self.breaks_left: int | None = None
        self.gates: dict[str, asyncio.Event] = {}
        self.stuck_uids: set[int] = set()
        self.shims: dict[str, FakeShim] = {}
        self.facts: dict[str, Facts] = {}
        self.programs: Programs = endless
        self.seconds = 1000.0
        self.memory_used: int | None = None
        self.full = False
        self.usage = SandboxUsage()
        self.disk: Disk | None = None
        self.files: SandboxFiles | None = None
        self.disk_limits: dict[int, int] = {}
        self.disk_used = 0
        self.disk_obstacle: str | None = None
        self.disk_held = False
        self.disk_own = False
        self.disk_growth = 0
        self.disk_seconds = 0.0
        self.disk_slow: dict[str, asyncio.Event] = {}
        self.free_bytes = 1 << 40
        self.floor_bytes = 1 << 30
        self.records: dict[str, Record] = {}
        self.saved_sandboxes: dict[str, Sandbox] = {}
        self.saved_executions: dict[str, Execution] = {}
        self.saved_draining = False
        self.more_printed: dict[str, int] = {}
        self._waiting: set[asyncio.Event] = set()

    def call(self, name: str) -> None:
        """Write a call down, and break where a test asked for that."""
        self.calls.append(name)
        self.tell()
        if name != self.breaks or self.breaks_left == 0:
            return
        if self.breaks_left is not None:
            self.breaks_left -= 1
        raise self.fault or Broken(name)

    async def reach(self, name: str) -> None:
        """The same for a call that may be held up."""
        if name in self.gates:
            self.calls.append(f"{name} waits")
            self.tell()
            await self.gates[name].wait()
        self.call(name)

    def hold(self, what: str) -> None:
        """Note that `what` exists from now on."""
        self.held.add(what)
        self.tell()

    def drop(self, what: str) -> None:
        """Note that `what` does not exist (any more)."""
        self.held.discard(what)
        self.tell()

    def tell(self) -> None:
        """Let all who wait in `until` look again."""
        for news in self._waiting:
            news.set()

    async def until(self, check: Callable[[], object]) -> None:
        """Return once `check` is true, asked after each change. Raises TimeoutError after 30 s."""
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            async with asyncio.timeout(30):
                while not check():
                    await news.wait()
                    news.clear()
        finally:
            self._waiting.discard(news)

    # -- ports.host.Clock

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds
