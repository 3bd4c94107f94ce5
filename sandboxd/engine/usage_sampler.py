# SPDX-License-Identifier: Apache-2.0
"""Samples the usage of running executions for the history, periodically and on demand."""

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
# A stopping daemon waits no longer for the sample.
_LAST_SAMPLE_SECONDS = 3.0
# Younger samples are answered again.
_FRESH_SECONDS = 1.0


class UsageSampler:
    """Samples all running executions and saves the history."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._saving = asyncio.Lock()
        self._is_kept = True

    async def restore(self) -> None:
        """Load the history of an earlier daemon."""
        if (past := await self._context.history_store.load()) is not None:
            self._context.lifecycle.history.restore(past)

    async def pass_once(self) -> None:
        """Sample once, then save the closed intervals."""
        await self._sample()
        await self._save()

    async def close(self) -> None:
        """Sample a last time, then save the whole history."""
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
                # The history stays in memory; the next save includes the intervals.
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
        """Return the history with a sample of at most _FRESH_SECONDS of age."""
        history = self._context.lifecycle.history
        if self._context.clock.monotonic() - history.sampled_monotonic > _FRESH_SECONDS:
            await self._sample()
        return history

    async def _used_by(self, live: LiveSandbox) -> list[tuple[int, Execution, SandboxUsage]]:
        # An execution that never starts reports no end.
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
            # Released meanwhile: the ends of the executions carry the usage.
            return []
        owner = live.sandbox.owner_uid
        return [(owner, running[name], one) for name, one in used.items()]
