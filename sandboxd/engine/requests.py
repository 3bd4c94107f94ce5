# SPDX-License-Identifier: Apache-2.0
"""Requests to the engine and reports from the engine: values only."""

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
    """The request of a caller. is_retry: sent before; the answer is the object made then."""

    request_id: str
    is_retry: bool = False


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """A requested sandbox; None = the server's default."""

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
class SandboxChanges:
    """Changes of a sandbox; None = as before. force: lower memory below the use."""

    limits: LimitChanges = field(default_factory=LimitChanges)
    metadata: Mapping[str, str] | None = None
    lifetime_seconds: float | None = None
    idle_timeout_seconds: float | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """A requested execution."""

    command: Command
    limits: LimitChanges = field(default_factory=LimitChanges)
    origin: Origin | None = None


@dataclass(slots=True)
class Progress:
    """The bytes of an input written so far."""

    written_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """A sandbox's usage, running executions' usage if asked for, and execution counts."""

    sandbox: Sandbox
    usage: SandboxUsage
    executions_running: int
    executions_total: int
    by_execution: Mapping[str, SandboxUsage] | None = None


@dataclass(frozen=True, slots=True)
class CgroupReport:
    """The cgroup mode asked for, the version found, and the reason for the scheme in use."""

    mode: str
    version: str
    detail: str


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """The sums that limits of all sandboxes may reach, and the memory committed so far."""

    budget_bytes: int
    reserve_bytes: int
    committed_bytes: int
    free_bytes: int
    slots: int
    tasks: int
    tasks_source: str


@dataclass(frozen=True, slots=True)
class HostReport:
    """The features and the load of this daemon."""

    version: str
    instance_id: str
    ready: bool
    draining: bool
    executions_running: int
    scheme: SchemeName
    reason: str
    cgroup: CgroupReport
    capacity: CapacityReport
    limits: Limits
    enforcement: Mapping[str, Enforcement]
    isolation: Offers
    missing: tuple[str, ...]
