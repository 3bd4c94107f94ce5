# SPDX-License-Identifier: Apache-2.0
"""What the engine is asked for and what it reports: values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandboxd.core.levels import Offers
from sandboxd.core.model import (
    Bind,
    Command,
    EnforcedBy,
    Enforcement,
    LimitChanges,
    Limits,
    Sandbox,
    SandboxUsage,
    SchemeName,
)


@dataclass(frozen=True, slots=True)
class Origin:
    """The request that asked; is_retry: it came before, and what it made then is the answer."""

    request_id: str
    is_retry: bool = False


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """A sandbox as asked for; None = the server's default."""

    name: str | None = None
    limits: LimitChanges = field(default_factory=LimitChanges)
    require: tuple[str, ...] = ()
    require_by: EnforcedBy | None = None
    isolation: str | None = None
    network: str | None = None
    rootfs: str | None = None
    binds: tuple[Bind, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    lifetime_seconds: float | None = None
    idle_timeout_seconds: float | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """An execution as asked for."""

    command: Command
    limits: LimitChanges = field(default_factory=LimitChanges)
    origin: Origin | None = None


@dataclass(slots=True)
class Progress:
    """How much of an input was written so far."""

    written_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """What a sandbox uses and has used, and its executions whose records are kept.

    by_execution: the same of each running one, where that was asked for.
    """

    sandbox: Sandbox
    usage: SandboxUsage
    executions_running: int
    executions_total: int
    by_execution: Mapping[str, SandboxUsage] | None = None


@dataclass(frozen=True, slots=True)
class HostReport:
    """What this daemon can do here and how much of it is taken."""

    version: str
    instance_id: str
    scheme: SchemeName
    reason: str
    ready: bool
    draining: bool
    executions_running: int
    budget_bytes: int
    reserve_bytes: int
    committed_bytes: int
    free_bytes: int
    slots: int
    tasks_total: int
    tasks_source: str
    limits: Limits
    enforcement: Mapping[str, Enforcement]
    offers: Offers
    cgroup_mode: str
    cgroup_version: str
    cgroup_detail: str
    missing: tuple[str, ...]
