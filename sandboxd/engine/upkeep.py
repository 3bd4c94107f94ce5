# SPDX-License-Identifier: Apache-2.0
"""Periodic work: deadlines, failed releases, expired records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sandboxd.core.model import ErrorCode, Execution, SandboxState
from sandboxd.engine.context import Context
from sandboxd.engine.disk import DISK_PERIOD_SECONDS, DiskKeeper
from sandboxd.engine.executions import Executions
from sandboxd.engine.reconcile import PERIOD_SECONDS, Reconcile
from sandboxd.engine.registry import LiveExecution, LiveSandbox
from sandboxd.engine.retention import excess, sandbox_bytes
from sandboxd.engine.sandboxes import Sandboxes
from sandboxd.engine.spools import ROOM_PERIOD_SECONDS, Spools
from sandboxd.engine.usage_sampler import SAMPLE_SECONDS, UsageSampler
from sandboxd.errors import SandboxdError

_log = logging.getLogger(__name__)
_PERIOD_SECONDS = 1.0
_IDLE_SECONDS = 5.0
_OVERDUE_SECONDS = 30.0
_Ended = tuple[LiveSandbox, LiveExecution]


class Upkeep:
    """Restores the wanted state periodically; a missed event is only late."""

    def __init__(
        self,
        context: Context,
        sandboxes: Sandboxes,
        executions: Executions,
        sampler: UsageSampler,
        disk: DiskKeeper,
    ) -> None:
        self._context = context
        self._sampler = sampler
        self._disk = disk
        self._sandboxes = sandboxes
        self._reconcile = Reconcile(context, sandboxes, executions)

    def start(self) -> None:
        """Start the periodic tasks, which run until cancelled."""
        scheme, launcher = self._context.scheme, self._context.launcher
        # Separate tasks: a wait of a task delays no further task.
        for name, period, work in (
            ("upkeep", _PERIOD_SECONDS, self.pass_once),
            ("reconcile", PERIOD_SECONDS, self._reconcile.pass_once),
            ("upkeep of the scheme", _PERIOD_SECONDS, scheme.upkeep),
            ("upkeep of the spawner", _PERIOD_SECONDS, launcher.upkeep),
            ("history", SAMPLE_SECONDS, self._sampler.pass_once),
            ("room for output", ROOM_PERIOD_SECONDS, Spools(self._context).pass_once),
            ("disk limits", DISK_PERIOD_SECONDS, self._disk.pass_once),
        ):
            self._context.tasks.start(self._repeat(name, period, work), name)

    async def pass_once(self) -> None:
        """Check all sandboxes and executions once."""
        now = self._context.clock.monotonic()
        retention_seconds = self._context.settings.retention_seconds
        await self._prune_sandboxes()
        for live in self._context.registry:
            if live.sandbox.state is not SandboxState.SUSPENDED:
                await _end_overdue(live, now)
            if live.is_over:
                if now - live.sandbox.released_monotonic > retention_seconds:
                    await self._forget(live)
            elif live.sandbox.state is SandboxState.RELEASING:
                if now < live.retry_monotonic:
                    continue
                self._sandboxes.start_release(live, ErrorCode.RELEASED)
            elif _is_spent(live):
                self._sandboxes.start_release(live, ErrorCode.RELEASED)
            elif self._has_expired(live, now):
                self._sandboxes.start_release(live, ErrorCode.EXPIRED)
        await self._prune_executions(now)

    async def _repeat(self, name: str, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Call `work` every `seconds`, for ever; an error ends only the present round.

        While no sandbox lives, every 5 seconds, and at once when a sandbox comes.
        """
        clock = asyncio.get_running_loop().time
        while True:
            # At multiples of the period, so that works share wake-ups; half a period away at least.
            await asyncio.sleep(seconds * 1.5 - (clock() + seconds / 2) % seconds)
            await self._context.registry.some_live(max(0.0, _IDLE_SECONDS - seconds))
            try:
                await work()
            except SandboxdError as exc:
                _log.error("Cannot finish a round of %s: %s", name, exc.message)
            except Exception:
                _log.exception("Cannot finish a round of %s", name)

    def _has_expired(self, live: LiveSandbox, now: float) -> bool:
        sandbox = live.sandbox
        if sandbox.expires_monotonic is not None and now >= sandbox.expires_monotonic:
            return True
        if live.running() or live.starting or live.uses or sandbox.state is SandboxState.SUSPENDED:
            live.touch(self._context.clock)
            return False
        idle = sandbox.idle_timeout_seconds
        return idle is not None and now - sandbox.used_monotonic >= idle

    async def _forget(self, live: LiveSandbox) -> None:
        self._context.registry.forget(live)
        await self._context.workspaces.remove(live.sandbox.id)

    async def _prune_sandboxes(self) -> None:
        """Remove the records of released sandboxes above the bounds."""
        settings = self._context.settings
        for bound, size in (
            (settings.retention_executions, lambda _: 1),
            (settings.retention_argument_bytes, lambda live: sandbox_bytes(live.sandbox)),
        ):
            for live in excess(
                [live for live in self._context.registry if live.is_over],
                bound,
                owner=lambda live: live.sandbox.owner_uid,
                size=size,
                since=lambda live: live.sandbox.released_monotonic,
            ):
                await self._forget(live)

    async def _prune_executions(self, now: float) -> None:
        """Remove ended executions past the retention time, then above the bounds."""
        context, settings = self._context, self._context.settings
        for live, running in self._ended():
            if now - running.execution.finished_monotonic > settings.retention_seconds:
                await context.forget_execution(live, running)
        # Arguments are on disk too, but the daemon's memory fills first.
        sizes: tuple[tuple[int, Callable[[_Ended], int]], ...] = (
            (settings.retention_executions, lambda _: 1),
            (settings.retention_output_bytes, lambda one: _output_bytes(one[1].execution)),
            (settings.retention_argument_bytes, lambda one: one[1].argument_bytes),
        )
        for bound, size in sizes:
            for live, running in excess(
                self._ended(),
                bound,
                owner=lambda one: one[0].sandbox.owner_uid,
                size=size,
                since=lambda one: one[1].execution.finished_monotonic,
            ):
                await context.forget_execution(live, running)

    def _ended(self) -> list[_Ended]:
        return [one for one in self._context.registry.executions() if one[1].collected.is_set()]


async def _end_overdue(live: LiveSandbox, now: float) -> None:
    """End executions whose shim hangs, well past the deadline."""
    for running in live.running():
        deadline = running.deadline_monotonic
        if running.shim is None or deadline is None or now < deadline + _OVERDUE_SECONDS:
            continue
        if not running.is_overdue:
            _log.error("Execution %s is past its deadline: ending it", running.execution.id)
        running.is_overdue = True
        await running.shim.destroy()


def _is_spent(live: LiveSandbox) -> bool:
    """Whether a one-shot sandbox's execution is over and the files are read."""
    started = bool(live.executions) and not live.starting
    is_read = all(one.reading is None for one in live.executions.values())
    return live.sandbox.is_one_shot and started and is_read and not live.running()


def _output_bytes(execution: Execution) -> int:
    return execution.stdout.size_bytes + execution.stderr.size_bytes
