# SPDX-License-Identifier: Apache-2.0
"""The shared objects of all parts of the engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandboxd.core.binds import BindPolicy
from sandboxd.core.levels import Offers
from sandboxd.core.model import Enforcement, Execution, OutputSummary, Sandbox
from sandboxd.core.policy import LimitPolicy
from sandboxd.core.turns import Turns
from sandboxd.engine.lifecycle import Lifecycle
from sandboxd.engine.ports.host import Clock, Uids
from sandboxd.engine.ports.launch import Launcher
from sandboxd.engine.ports.scheme import Roots, Scheme
from sandboxd.engine.ports.store import HistoryStore, Store
from sandboxd.engine.ports.workspaces import Workspaces
from sandboxd.engine.registry import LiveExecution, LiveSandbox, Registry
from sandboxd.engine.requests import CgroupReport
from sandboxd.errors import SandboxdError

_log = logging.getLogger(__name__)
# Creations and starts under way at a time, and steps of releases. All of these wait for the same
# threads, helper processes and systemd, first come first served: a long queue there would be a
# single caller's.
_UNDER_WAY = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration, and the features found on the host."""

    version: str
    instance_id: str
    policy: LimitPolicy
    offers: Offers
    binds: BindPolicy
    private_mounts: bool
    cgroup: CgroupReport
    missing: tuple[str, ...] = ()
    runtime_hints: tuple[str, ...] = ()
    max_executions: int = 64
    retention_seconds: float = 3600.0
    retention_executions: int = 2000
    retention_output_bytes: int = 2 << 30
    retention_argument_bytes: int = 64 << 20


class Tasks:
    """The owner of all background tasks. A failed task is logged; the rest goes on."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Tasks:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._group.__aexit__(*exc)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` in the background."""
        task = self._group.create_task(_guarded(work, name), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # A task cancelled before the first step never awaits `work`.
        task.add_done_callback(lambda _: work.close())
        return task

    def cancel_all(self) -> None:
        """Cancel all tasks; processes outside the daemon go on."""
        for task in self._running:
            task.cancel()


async def _guarded(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Exception:
        _log.exception("Cannot finish %s", name)


@dataclass(frozen=True, slots=True)
class Context:
    """Ports, settings and the registry."""

    settings: Settings
    clock: Clock
    scheme: Scheme
    launcher: Launcher
    roots: Roots
    workspaces: Workspaces
    uids: Uids
    store: Store
    history_store: HistoryStore
    registry: Registry
    tasks: Tasks
    lifecycle: Lifecycle
    # Turns of owners. Releases, which processes that die slowly delay, keep no start waiting.
    starts: Turns = field(default_factory=lambda: Turns(_UNDER_WAY))
    ends: Turns = field(default_factory=lambda: Turns(_UNDER_WAY))

    async def save_sandbox(self, sandbox: Sandbox) -> None:
        """Save the record; a full disk is logged, since a release must go on."""
        try:
            await self.store.save_sandbox(sandbox)
        except SandboxdError as exc:
            _log.error("Cannot keep the record of sandbox %s: %s", sandbox.id, exc)

    async def forget_execution(self, live: LiveSandbox, running: LiveExecution) -> None:
        """Remove an ended execution's record and output, unless already removed."""
        if live.executions.pop(running.execution.id, None) is not None:
            live.has_pruned = True
            await self.workspaces.remove_execution(live.sandbox.id, running.execution.id)

    def spooled(self, execution: Execution) -> tuple[OutputSummary, OutputSummary]:
        """Return the present sizes of an execution's stdout and stderr."""
        size, place = self.workspaces.output_size, (execution.sandbox_id, execution.id)
        return OutputSummary(size(*place, "stdout")), OutputSummary(size(*place, "stderr"))

    def enforcement(self) -> Mapping[str, Enforcement]:
        """Return the enforcement of each limit of a sandbox and the sandbox's executions."""
        return {**self.scheme.enforcement(), "disk_bytes": self.workspaces.disk_enforcement()}
