# SPDX-License-Identifier: Apache-2.0
"""Shows the history all that runs, from time to time and for whoever asks for it, and saves it."""

from __future__ import annotations

import asyncio
import logging

from sandboxd.core.model import Execution, SandboxUsage
from sandboxd.engine.context import Context
from sandboxd.engine.history import History
from sandboxd.engine.registry import LiveSandbox
from sandboxd.errors import SandboxdError

_log = logging.getLogger(__name__)
SAMPLE_SECONDS = 20.0
# A daemon that is told to stop waits no longer for whoever would tell what is used.
_LAST_SAMPLE_SECONDS = 3.0
# Whoever asks again at once is told what was seen.
_FRESH_SECONDS = 1.0


class UsageSampler:
    """At every running execution."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._saving = asyncio.Lock()
        self._is_kept = True

    async def restore(self) -> None:
        """Give the history what an earlier daemon saved."""
        if (past := await self._context.history_store.load()) is not None:
            self._context.lifecycle.history.restore(past)

    async def pass_once(self) -> None:
        """One look at all, and what is over is saved."""
        await self._sample()
        await self._save()

    async def close(self) -> None:
        """A last look; all of it is saved."""
        try:
            async with asyncio.timeout(_LAST_SAMPLE_SECONDS):
                await self._sample()
        except TimeoutError:
            _log.warning("Cannot tell the history what runs: no answer")
        except Exception:
            _log.exception("Cannot tell the history what runs")
        self._context.lifecycle.history.close()
        await self._save()

    async def _save(self) -> None:
        history = self._context.lifecycle.history
        async with self._saving:
            if (past := history.unsaved()) is None:
                return
            try:
                await self._context.history_store.save(past)
            except SandboxdError as exc:
                # It goes on in memory, and is saved with what comes.
                if self._is_kept:
                    _log.warning("Cannot keep the history: %s", exc.message)
                self._is_kept = False
            else:
                history.saved(past)
                self._is_kept = True

    async def _sample(self) -> None:
        found: list[tuple[int, Execution, SandboxUsage]] = []
        for live in self._context.registry:
            found += await self._used_by(live)
        self._context.lifecycle.history.sample(found)

    async def fresh(self) -> History:
        """The history with all that runs now in it."""
        history = self._context.lifecycle.history
        if self._context.clock.monotonic() - history.sampled_monotonic > _FRESH_SECONDS:
            await self._sample()
        return history

    async def _used_by(self, live: LiveSandbox) -> list[tuple[int, Execution, SandboxUsage]]:
        # One that is not started yet may never be, and then has no end that would be told.
        running = {
            one.execution.id: one.execution
            for one in live.running()
            if one.execution.started_at is not None
        }
        if live.is_over or not running:
            return []
        try:
            used = await self._context.scheme.execution_usages(live.sandbox, running.values())
        except SandboxdError:
            # Released since: its ends tell of it.
            return []
        owner = live.sandbox.owner_uid
        return [(owner, running[name], one) for name, one in used.items()]
