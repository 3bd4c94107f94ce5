# SPDX-License-Identifier: Apache-2.0
"""Shows the history all that runs, from time to time and for whoever asks for it."""

from __future__ import annotations

from sandboxd.engine.context import Context
from sandboxd.engine.history import History
from sandboxd.engine.registry import LiveSandbox
from sandboxd.errors import SandboxdError
from sandboxd.model import Execution, SandboxUsage

LOOK_SECONDS = 20.0
# Whoever asks again at once is told what was seen.
_FRESH_SECONDS = 1.0


class Looks:
    """At every running execution."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def pass_once(self) -> None:
        """One look at all."""
        found: list[tuple[int, Execution, SandboxUsage]] = []
        for live in self._context.registry:
            found += await self._used_by(live)
        self._context.life.history.look(found)

    async def fresh(self) -> History:
        """The history with all that runs now in it."""
        history = self._context.life.history
        if self._context.clock.monotonic() - history.looked_monotonic > _FRESH_SECONDS:
            await self.pass_once()
        return history

    async def _used_by(self, live: LiveSandbox) -> list[tuple[int, Execution, SandboxUsage]]:
        running = {one.execution.id: one.execution for one in live.running()}
        if live.is_over or not running:
            return []
        try:
            used = await self._context.scheme.execution_usages(live.sandbox, running.values())
        except SandboxdError:
            # Released since: its ends tell of it.
            return []
        owner = live.sandbox.owner_uid
        return [(owner, running[name], one) for name, one in used.items()]
