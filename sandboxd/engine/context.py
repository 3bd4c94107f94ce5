# SPDX-License-Identifier: Apache-2.0
"""What every part of the engine works with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from sandboxd.core.binds import BindPolicy
from sandboxd.core.levels import Offers
from sandboxd.core.model import Enforcement, Limits
from sandboxd.core.policy import LimitPolicy
from sandboxd.engine.lifecycle import Lifecycle
from sandboxd.engine.ports.host import Clock, Uids
from sandboxd.engine.ports.launch import Launcher
from sandboxd.engine.ports.scheme import Roots, Scheme
from sandboxd.engine.ports.store import HistoryStore, Store
from sandboxd.engine.ports.workspaces import Workspaces
from sandboxd.engine.registry import Registry

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """What was configured and what the host was found to give."""

    version: str
    instance_id: str
    policy: LimitPolicy
    offers: Offers
    binds: BindPolicy
    private_mounts: bool
    cgroup_mode: str
    cgroup_version: str
    cgroup_detail: str
    missing: tuple[str, ...] = ()
    runtime_hints: tuple[str, ...] = ()
    max_executions: int = 64
    retention_seconds: float = 3600.0
    retention_executions: int = 2000
    retention_output_bytes: int = 2 << 30
    retention_argument_bytes: int = 64 << 20


class Tasks:
    """The one owner of background tasks. A task that breaks is logged, the others go on."""

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
        # One that is cancelled before its first step was never awaited.
        task.add_done_callback(lambda _: work.close())
        return task

    def cancel_all(self) -> None:
        """End what still waits: what runs outside this process goes on."""
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

    def enforcement(self, limits: Limits) -> Mapping[str, Enforcement]:
        """Who holds each limit of a sandbox and its executions, and how."""
        held = dict(self.scheme.enforcement(limits))
        return {**held, "disk_bytes": self.workspaces.disk_enforcement()}
