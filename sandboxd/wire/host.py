# SPDX-License-Identifier: Apache-2.0
"""Answers about the host, and the form of every error."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from sandboxd.core.model import (
    ErrorCode,
    EventType,
    ExecutionStatus,
    Isolation,
    Network,
    SandboxState,
    SchemeName,
)
from sandboxd.wire.answers import Answer, EnforcementAnswer, LimitsAnswer


class CapacityAnswer(Answer):
    """The sums that limits of all sandboxes may reach, and the memory committed so far."""

    budget_bytes: int
    reserve_bytes: int
    committed_bytes: int = Field(description="to the caller's own sandboxes; for admins to all")
    free_bytes: int = Field(description="for others than admins in whole slots")
    slots: int = Field(description="sandboxes with the default memory limit that still fit")
    tasks: int = Field(
        description="processes and threads that all sandboxes together may have; one may have half"
    )
    tasks_source: str = Field(description="what bounds them, less what is kept for the host")


class MissingFeatureAnswer(Answer):
    """A prerequisite that this host lacks, and the remedy."""

    what: str
    remedy: str


class OfferAnswer(Answer):
    """An isolation level or a network: available if allowed and if no prerequisite is missing."""

    available: bool
    detail: str
    lacks: list[MissingFeatureAnswer]
    barred_by: str | None = Field(description="the admin's setting that keeps requests from it")


class IsolationAnswer(Answer):
    """The isolation levels and networks of this host, and the defaults for requests naming none."""

    default_level: Isolation
    default_network: Network
    levels: dict[str, OfferAnswer]
    networks: dict[str, OfferAnswer]


class CgroupAnswer(Answer):
    """The cgroup mode asked for, the version found, and the reason for the scheme in use."""

    mode: str
    version: str
    detail: str


class HostAnswer(Answer):
    """The daemon's abilities on this host, and the capacity in use."""

    version: str
    instance_id: str
    ready: bool
    draining: bool = Field(description="an admin wants no new work here")
    executions_running: int = Field(description="the caller's own; for admins those of all")
    scheme: SchemeName
    reason: str
    cgroup: CgroupAnswer
    capacity: CapacityAnswer
    limits: LimitsAnswer
    enforcement: dict[str, EnforcementAnswer]
    isolation: IsolationAnswer
    missing: list[str]


class ResourceControlAnswer(Answer):
    """The means that hold limits; a quota is true only where the sum over a sandbox is held."""

    scheme: SchemeName
    cgroup: CgroupAnswer
    sandbox_memory_quota: bool
    sandbox_cpu_quota: bool
    sandbox_pids_quota: bool
    sandbox_io_quota: bool
    sandbox_disk_quota: bool
    limits: LimitsAnswer
    enforcement: dict[str, EnforcementAnswer]


class HealthAnswer(Answer):
    """The daemon answers; /readyz says whether the daemon takes work."""

    status: str
    version: str
    ready: bool
    resource_control: ResourceControlAnswer


class EventAnswer(Answer):
    """The data of an event of /v1/events; null where a field does not apply."""

    type: EventType
    at: datetime
    owner_uid: int
    sandbox_id: str
    sandbox_name: str | None
    state: SandboxState
    reason: ErrorCode | None
    execution_id: str | None
    status: ExecutionStatus | None
    error_code: ErrorCode | None
    exit_code: int | None
    signal: int | None


class ReadyAnswer(Answer):
    """The daemon takes work."""

    ready: bool


class ErrorBody(Answer):
    """An error: a stable code, text for people, and a hint what to do."""

    code: str
    message: str
    hint: str | None
    retryable: bool
    details: dict[str, Any]
    request_id: str


class ErrorAnswer(Answer):
    """The body of every answer with a status outside 2xx."""

    error: ErrorBody
