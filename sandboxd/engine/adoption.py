# SPDX-License-Identifier: Apache-2.0
"""Adopts the sandboxes and executions of an earlier daemon at start; removes remains."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection
from datetime import UTC, datetime

from sandboxd.core.model import (
    ErrorCode,
    Execution,
    ExecutionStatus,
    Outcome,
    Sandbox,
    SandboxState,
)
from sandboxd.engine.context import Context
from sandboxd.engine.executions import Executions
from sandboxd.engine.ports.launch import Shim
from sandboxd.engine.registry import LiveExecution, LiveSandbox
from sandboxd.engine.sandboxes import Sandboxes
from sandboxd.errors import SandboxdError

_log = logging.getLogger(__name__)
_GONE_SECONDS = 10.0


class Adoption:
    """Reads all records once and restores the live objects."""

    def __init__(self, context: Context, sandboxes: Sandboxes, executions: Executions) -> None:
        self._context = context
        self._sandboxes = sandboxes
        self._executions = executions

    async def run(self) -> None:
        """Adopt every recorded sandbox, then remove this instance's resources without a record."""
        context = self._context
        known, stored = [], []
        for sandbox, executions in await context.store.load():
            live = LiveSandbox(sandbox)
            context.registry.add(live)
            stored.append(sandbox.id)
            ids = [execution.id for execution in executions]
            await self._end_unknown(sandbox.id, ids)
            if live.is_over:
                for execution in executions:
                    live.executions[execution.id] = _ended(execution)
                continue
            known.append(sandbox.id)
            await context.uids.reclaim(sandbox.uid, sandbox.id)
            # Quotas may be new since, and a disk image or a root may have to be mounted anew.
            disk_bytes = sandbox.limits.disk_bytes
            there = (
                await _succeeds(context.workspaces.limit_disk(sandbox, disk_bytes), sandbox)
                and await context.scheme.adopt_sandbox(sandbox, ids)
                and await _succeeds(self._sandboxes.build_root(sandbox), sandbox)
            )
            for execution in executions:
                await self._adopt_execution(live, execution)
            await self._suspend_again(live)
            self._settle(live, sandbox, there=there)
        await context.roots.discard_unknown(known)
        await context.workspaces.discard_unknown(stored)
        await context.uids.discard_unknown(known)
        for unit in await context.scheme.discard_unknown(known):
            _log.warning("Removed %s, which no record knows", unit)

    async def _end_unknown(self, sandbox_id: str, known: Collection[str]) -> None:
        """End executions without a readable record: no caller could follow them."""
        context = self._context
        for execution_id in await context.workspaces.execution_ids(sandbox_id):
            if execution_id in known:
                continue
            directory = context.workspaces.record_directory(sandbox_id, execution_id)
            shim = await context.launcher.attach(sandbox_id, execution_id, directory)
            if shim is not None:
                _log.error("Ending execution %s: its record cannot be read", execution_id)
                await shim.destroy()
                await shim.gone(timeout_seconds=_GONE_SECONDS)
            await context.workspaces.discard_execution(sandbox_id, execution_id)

    async def _adopt_execution(self, live: LiveSandbox, execution: Execution) -> None:
        context = self._context
        if execution.is_finished:
            live.executions[execution.id] = _ended(execution)
            return
        directory = context.workspaces.record_directory(live.sandbox.id, execution.id)
        # A release that the earlier daemon began has ordered the end already.
        running = LiveExecution(execution, kill_code=live.sandbox.release_code)
        shim = await context.launcher.attach(live.sandbox.id, execution.id, directory)
        if execution.outcome.status is ExecutionStatus.PENDING:
            started_at = await self._started_at(shim, directory)
            if started_at is None:
                await self._take_back(live, execution, shim)
                return
            # The shim had the order to start; only the record and the callers did not know.
            execution.started_at = started_at
            execution.outcome = Outcome(ExecutionStatus.RUNNING)
            await self._executions.keep(execution)
        live.executions[execution.id] = running
        running.shim = shim
        if running.shim is not None:
            self._executions.watch(live, running)
            _log.info("Adopted execution %s of sandbox %s", execution.id, live.sandbox.id)
            return
        await self._executions.conclude(live, running, context.launcher.read_record(directory))
        await self._collect(live, execution)
        running.collected.set()

    async def _started_at(self, shim: Shim | None, directory: str) -> datetime | None:
        """Return the start time of the command of an interrupted start; None if not started."""
        started_at = None if shim is None else await shim.started()
        facts = self._context.launcher.read_record(directory)
        if started_at is None and facts is not None:
            return datetime.fromtimestamp(facts.finished_at - facts.wall_seconds, UTC)
        return started_at

    async def _take_back(self, live: LiveSandbox, execution: Execution, shim: Shim | None) -> None:
        """Undo a start that the end of the earlier daemon interrupted, unknown to any caller."""
        context = self._context
        if shim is not None:
            await shim.destroy()
            await shim.gone(timeout_seconds=_GONE_SECONDS)
        await self._collect(live, execution)
        await context.workspaces.remove_execution(live.sandbox.id, execution.id)
        _log.warning("Took back execution %s, which had not been started", execution.id)

    async def _collect(self, live: LiveSandbox, execution: Execution) -> None:
        """Remove an execution's cgroup; an error is left to the reconcile."""
        try:
            await self._context.scheme.collect(live.sandbox, execution)
        except SandboxdError as exc:
            _log.error("Cannot clear up after execution %s: %s", execution.id, exc)

    async def _suspend_again(self, live: LiveSandbox) -> None:
        """Freeze all executions again: the earlier daemon may have ended during the suspend."""
        if live.sandbox.state is not SandboxState.SUSPENDED:
            return
        live.suspended_monotonic = self._context.clock.monotonic()
        for running in live.running():
            if running.shim is not None:
                try:
                    await running.shim.freeze()
                except SandboxdError as exc:
                    _log.error("Cannot suspend execution %s: %s", running.execution.id, exc)

    def _settle(self, live: LiveSandbox, sandbox: Sandbox, *, there: bool) -> None:
        """Keep a sandbox with a place; release a sandbox without a place or without a purpose."""
        without_use = sandbox.is_one_shot and not live.executions
        if sandbox.state is SandboxState.RELEASING or not there or without_use:
            if not there:
                _log.warning("Releasing sandbox %s: its place is gone", sandbox.id)
            self._sandboxes.start_release(live, ErrorCode.RELEASED)


async def _succeeds(work: Awaitable[None], sandbox: Sandbox) -> bool:
    try:
        await work
    except SandboxdError as exc:
        _log.error("Cannot keep sandbox %s: %s", sandbox.id, exc)
        return False
    return True


def _ended(execution: Execution) -> LiveExecution:
    ended = LiveExecution(execution)
    ended.finished.set()
    ended.collected.set()
    return ended
