# SPDX-License-Identifier: Apache-2.0
"""Enforces disk limits without kernel quota, by counting sandboxes that may be over the limit.

A sandbox cannot have passed the limit before the whole file system has grown by the room left at
the last count. Until then no count is needed, except a periodic check, since deletions elsewhere
hide growth. Over the limit the running executions end. Executions that start over the limit may go
on, in order to delete files, until the use grows. An incomplete count (too deep, too many names or
descriptors) ends no execution while the file system has grown by no more than the room left.

Each sandbox is counted and judged separately: rests are proportional to the time of the sandbox's
own counts, and no sandbox waits for another's count or end (the workspace counts in turns).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from sandboxd.core.model import ErrorCode, LimitOwner, Outcome, Sandbox
from sandboxd.engine.context import Context
from sandboxd.engine.registry import DiskState, LiveSandbox
from sandboxd.errors import DiskQuotaExceeded, DiskUncountable, SandboxdError

_log = logging.getLogger(__name__)
DISK_PERIOD_SECONDS = 0.25
# A sandbox's counts take at most 2 % of a core, or a tenth of a core where 2 % would make the last
# count too old: slow counting must not buy time without a count.
_REST = 49.0
_DEAR_REST = 9.0
# Counts on request take at most a tenth of a core.
_CALLER_REST = 9.0
_CALLER_WAIT_SECONDS = 2.0
_OLDEST_SECONDS = 10.0
_END_SECONDS = 5.0
# A file system may refuse a write before the limit: ext4 takes or refuses a large folio whole (from
# Linux 6.16 on).
_MOST_LAST_BYTES = 2 << 20
_LAST_SHARE = 16


class DiskKeeper:
    """Counts sandboxes and ends executions over the limit."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._looks: dict[LiveSandbox, asyncio.Task[None]] = {}

    async def pass_once(self) -> None:
        """Start counts of sandboxes that may be over the limit; over the limit executions end."""
        context = self._context
        active = [
            live
            for live in context.registry
            if (live.running() or live.uses) and not context.workspaces.holds_disk(live.sandbox.id)
        ]
        if not active:
            return
        growth = await context.workspaces.disk_growth()
        for live in active:
            if live not in self._looks and self._is_due(live, growth):
                name = f"count of the disk of sandbox {live.sandbox.id}"
                task = context.tasks.start(self._look(live), name)
                self._looks[live] = task
                task.add_done_callback(partial(self._looked, live))

    async def used(self, live: LiveSandbox) -> int | None:
        """Return the bytes on disk, slightly old where counting is slow; None if unknown."""
        held = self._context.workspaces.holds_disk(live.sandbox.id)
        if held or self._rest_for_caller(live) <= 0:
            await self._count(live)
        return live.disk.used_bytes

    def taker(self, live: LiveSandbox) -> Callable[[int], Awaitable[None]]:
        """Return a writer's check of each size, raising DiskQuotaExceeded, DiskUncountable."""

        async def take(size: int) -> None:
            if self._context.workspaces.holds_disk(live.sandbox.id):
                return
            rest = self._rest_for_caller(live)
            if not _has_room(live, size) and rest <= _CALLER_WAIT_SECONDS:
                # Deletions since the last count may have made room.
                await asyncio.sleep(max(0.0, rest))
                await self._count(live)
            if not _has_room(live, size):
                if live.disk.obstacle is not None:
                    raise DiskUncountable(
                        f"cannot write to sandbox {live.sandbox.id}: what it has on disk cannot be "
                        f"counted: {live.disk.obstacle}",
                        hint="delete something, or end what runs",
                        details={"limit_bytes": live.sandbox.limits.disk_bytes},
                    )
                raise DiskQuotaExceeded(
                    f"cannot write to sandbox {live.sandbox.id}: its disk limit is reached",
                    hint="delete something, or raise disk_bytes",
                    details={"limit_bytes": live.sandbox.limits.disk_bytes,
                             "used_bytes": live.disk.used_bytes},
                )  # fmt: skip
            live.disk.charged_bytes += size

        return take

    # -- private

    def _looked(self, live: LiveSandbox, _task: asyncio.Task[None]) -> None:
        del self._looks[live]

    async def _look(self, live: LiveSandbox) -> None:
        await self._count(live)
        await self._judge(live)

    def _is_due(self, live: LiveSandbox, growth: int) -> bool:
        """Whether a sandbox needs a count now."""
        disk, limit = live.disk, live.sandbox.limits.disk_bytes
        if disk.counted_monotonic is None:
            return True
        age = self._context.clock.monotonic() - disk.counted_monotonic
        took = disk.took_seconds
        rest = min(took * _REST, max(_OLDEST_SECONDS, took * _DEAR_REST))
        if age < max(DISK_PERIOD_SECONDS, rest):
            return False
        if disk.most_bytes is None or age >= _OLDEST_SECONDS:
            return True
        return growth - disk.growth_bytes >= limit - disk.most_bytes

    def _rest_for_caller(self, live: LiveSandbox) -> float:
        """Return the seconds until a caller may cause the next count."""
        disk = live.disk
        if disk.counted_monotonic is None:
            return 0.0
        again = disk.counted_monotonic + disk.took_seconds * _CALLER_REST
        return again - self._context.clock.monotonic()

    async def _count(self, live: LiveSandbox) -> None:
        disk, workspaces = live.disk, self._context.workspaces
        async with disk.lock:
            charged = disk.charged_bytes
            growth = await workspaces.disk_growth()
            try:
                use = await workspaces.disk_used(live.sandbox)
            except OSError as exc:
                if not live.is_over:
                    _log.warning("Cannot count the disk of sandbox %s: %s", live.sandbox.id, exc)
                return
            if use.obstacle is None:
                disk.most_bytes = use.used_bytes
            else:
                if disk.obstacle is None:
                    _log.warning(
                        "Cannot count the disk of sandbox %s: %s", live.sandbox.id, use.obstacle
                    )
                if disk.most_bytes is not None:
                    disk.most_bytes += growth - disk.growth_bytes
            disk.obstacle, disk.least_bytes = use.obstacle, use.used_bytes
            disk.growth_bytes, disk.took_seconds = growth, use.took_seconds
            disk.charged_bytes -= charged
            disk.counted_monotonic = self._context.clock.monotonic()

    async def _judge(self, live: LiveSandbox) -> None:
        disk, limit = live.disk, live.sandbox.limits.disk_bytes
        if disk.counted_monotonic is None:
            return
        code = _verdict(disk, limit)
        if code is not None:
            await self._end(live, code)
            await self._count(live)
            disk.tolerated_bytes = disk.used_bytes or 0
        else:
            disk.tolerated_bytes = min(disk.tolerated_bytes, disk.least_bytes)

    async def _end(self, live: LiveSandbox, code: ErrorCode) -> None:
        running = [one for one in live.running() if one.shim is not None]
        what = "is over its disk limit"
        if code is not ErrorCode.DISK:
            what = f"may be over its disk limit ({live.disk.obstacle})"
        _log.info("Sandbox %s %s: ending its executions", live.sandbox.id, what)
        for one in running:
            if one.shim is not None:
                try:
                    await one.shim.kill(code, grace_seconds=0)
                except SandboxdError as exc:
                    _log.warning("Cannot end execution %s: %s", one.execution.id, exc)
        waits = [asyncio.ensure_future(one.finished.wait()) for one in running]
        if waits:
            _, late = await asyncio.wait(waits, timeout=_END_SECONDS)
            for wait in late:
                wait.cancel()


async def name_full_disk(context: Context, sandbox: Sandbox, outcome: Outcome) -> Outcome:
    """Return the outcome, with the disk limit named for a failure under a full quota.

    The kernel does not count refused writes, so the full quota is the only evidence.
    """
    failed = outcome.exit_code not in (None, 0) or outcome.signal is not None
    held = context.workspaces.holds_disk(sandbox.id)
    if not held or outcome.error_code is not None or not failed:
        return outcome
    try:
        used = (await context.workspaces.disk_used(sandbox)).used_bytes
    except OSError as exc:
        _log.warning("Cannot read the quota of sandbox %s: %s", sandbox.id, exc)
        return outcome
    limit = sandbox.limits.disk_bytes
    if used + min(_MOST_LAST_BYTES, limit // _LAST_SHARE) < limit:
        return outcome
    return replace(outcome, error_code=ErrorCode.DISK, limit_owner=LimitOwner.SANDBOX)


def _verdict(disk: DiskState, limit: int) -> ErrorCode | None:
    """Return the reason to end a sandbox's executions, or None.

    With an incomplete count growth is unknown, so any excess over the limit ends the executions.
    """
    if disk.obstacle is None:
        return ErrorCode.DISK if disk.least_bytes > max(limit, disk.tolerated_bytes) else None
    if disk.least_bytes > limit:
        return ErrorCode.DISK
    is_within = disk.most_bytes is not None and disk.most_bytes <= limit
    return None if is_within else ErrorCode.DISK_UNCOUNTABLE


def _has_room(live: LiveSandbox, size: int) -> bool:
    used = live.disk.most_bytes
    if used is None:
        return False
    return used + live.disk.charged_bytes + size <= live.sandbox.limits.disk_bytes
