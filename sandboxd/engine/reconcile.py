# SPDX-License-Identifier: Apache-2.0
"""Finds lost events within seconds by comparing records and host.

A finding counts when the next pass finds the same again: objects under creation or removal look
alike for a moment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sandboxd.core.model import ErrorCode, SandboxState
from sandboxd.engine.context import Context
from sandboxd.engine.executions import Executions
from sandboxd.engine.registry import LiveSandbox
from sandboxd.engine.sandboxes import Sandboxes

PERIOD_SECONDS = 2.0
_IN_USE = (SandboxState.READY, SandboxState.SUSPENDED)

_log = logging.getLogger(__name__)


class Reconcile:
    """Checks places, uids and the ends of executions."""

    def __init__(self, context: Context, sandboxes: Sandboxes, executions: Executions) -> None:
        self._context = context
        self._sandboxes = sandboxes
        self._executions = executions
        self._gone: set[str] = set()
        self._busy: set[str] = set()

    async def pass_once(self) -> None:
        """Check once."""
        self._watch_again()
        await self._release_without_place()
        await self._sweep_idle()
        for what in await self._context.scheme.clear_strays():
            _log.warning("Removed %s, which belongs to nobody", what)

    def _watch_again(self) -> None:
        """Watch executions again whose watcher ended by a bug."""
        for live in self._context.registry:
            for running in live.running():
                if running.watcher is not None and running.watcher.done():
                    _log.error("Watching execution %s again", running.execution.id)
                    self._executions.watch(live, running)

    async def _release_without_place(self) -> None:
        """Release sandboxes whose slice was stopped from outside, which ended the executions."""
        lives = {live.sandbox.id: live for live in self._in_use()}
        found = await self._context.scheme.without_place([e.sandbox for e in lives.values()])
        gone = set(found)
        for sandbox_id in gone & self._gone:
            live = lives[sandbox_id]
            if live.sandbox.state in _IN_USE:
                _log.error("Releasing sandbox %s: its place is gone", sandbox_id)
                self._sandboxes.start_release(live, ErrorCode.RELEASED)
        self._gone = gone

    async def _sweep_idle(self) -> None:
        """Kill processes of a sandbox's uid while no execution runs."""
        idle = {live.sandbox.id: live for live in self._in_use() if _is_idle(live)}
        busy_uids = await self._context.uids.busy([live.sandbox.uid for live in idle.values()])
        busy = {name for name, live in idle.items() if live.sandbox.uid in busy_uids}
        for sandbox_id in busy & self._busy:
            live = idle[sandbox_id]
            if _is_idle(live):
                _log.error(
                    "Ending processes of sandbox %s: uid %d has some, and no execution runs",
                    sandbox_id,
                    live.sandbox.uid,
                )
                await self._context.scheme.sweep(live.sandbox)
        self._busy = busy

    def _in_use(self) -> Iterable[LiveSandbox]:
        return [live for live in self._context.registry if live.sandbox.state in _IN_USE]


def _is_idle(live: LiveSandbox) -> bool:
    return not live.starting and all(e.collected.is_set() for e in live.executions.values())
