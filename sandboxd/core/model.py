# SPDX-License-Identifier: Apache-2.0
"""Plain values: limits, usage, sandboxes, executions, and the allowed states."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal

from sandboxd.core.limits import DEFAULT_CPU_WEIGHT


class SchemeName(enum.StrEnum):
    """The mechanisms for limits."""

    SYSTEMD = "systemd"
    RLIMIT = "rlimit"


class Isolation(enum.StrEnum):
    """The level of isolation from the host, weakest first."""

    NONE = "none"
    BASIC = "basic"
    STANDARD = "standard"
    STRICT = "strict"

    @property
    def has_own_root(self) -> bool:
        """Whether commands see a file system apart from the host's."""
        return self not in (Isolation.NONE, Isolation.BASIC)


class Network(enum.StrEnum):
    """The network that a command may reach."""

    NONE = "none"
    LOOPBACK = "loopback"
    HOST = "host"


class SandboxState(enum.StrEnum):
    """ready <-> suspended; both -> releasing -> released."""

    READY = "ready"
    SUSPENDED = "suspended"
    RELEASING = "releasing"
    RELEASED = "released"


class ExecutionStatus(enum.StrEnum):
    """PENDING -> RUNNING -> exactly one final status."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    SIGNALED = "SIGNALED"
    OOM_KILLED = "OOM_KILLED"
    TIMED_OUT = "TIMED_OUT"
    CPU_TIME_EXCEEDED = "CPU_TIME_EXCEEDED"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    DISK_QUOTA_EXCEEDED = "DISK_QUOTA_EXCEEDED"
    KILLED = "KILLED"
    LOST = "LOST"

    @property
    def is_final(self) -> bool:
        """Whether the execution is over."""
        return self not in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)


class LimitOwner(enum.StrEnum):
    """The owner of the limit that ended an execution."""

    EXECUTION = "execution"
    SANDBOX = "sandbox"
    AGGREGATE = "aggregate"
    HOST = "host"


class ErrorCode(enum.StrEnum):
    """The cause of an end that the exit alone does not show."""

    MEMORY = "SANDBOX_MEMORY_LIMIT_EXCEEDED"
    PIDS = "SANDBOX_PIDS_LIMIT_REACHED"
    DISK = "SANDBOX_DISK_QUOTA_EXCEEDED"
    DISK_UNCOUNTABLE = "SANDBOX_DISK_UNCOUNTABLE"
    TIMEOUT = "SANDBOX_TIMEOUT"
    CPU_TIME = "SANDBOX_CPU_TIME_LIMIT_EXCEEDED"
    OUTPUT = "SANDBOX_OUTPUT_LIMIT_EXCEEDED"
    KILLED_BY_CALLER = "KILLED_BY_CALLER"
    RELEASED = "SANDBOX_RELEASED"
    EXPIRED = "SANDBOX_EXPIRED"
    DRAINING = "HOST_DRAINING"
    HOST_MEMORY = "HOST_MEMORY_EXHAUSTED"
    LOST = "EXECUTION_LOST"


class EventType(enum.StrEnum):
    """The kind of an event."""

    SANDBOX_CREATED = "sandbox.created"
    SANDBOX_CHANGED = "sandbox.changed"
    SANDBOX_SUSPENDED = "sandbox.suspended"
    SANDBOX_RESUMED = "sandbox.resumed"
    SANDBOX_RELEASING = "sandbox.releasing"
    SANDBOX_RELEASED = "sandbox.released"
    EXECUTION_STARTED = "execution.started"
    EXECUTION_ENDED = "execution.ended"


class EnforcedBy(enum.StrEnum):
    """The enforcer of a limit."""

    KERNEL = "kernel"
    SUPERVISOR = "supervisor"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The enforcer of a limit, in words for admins. precision: None for the kernel."""

    by: EnforcedBy
    detail: str
    precision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A full set of limits of all processes together: core/limits.py. cpu_seconds: None = none."""

    memory_bytes: int
    cpus: float
    # Records of before this limit are without.
    cpu_weight: int = DEFAULT_CPU_WEIGHT
    pids: int
    io_read_bytes_per_second: int
    io_write_bytes_per_second: int
    disk_bytes: int
    timeout_seconds: float
    cpu_seconds: float | None
    max_output_bytes: int
    open_files: int
    file_size_bytes: int

    def with_changes(self, changes: LimitChanges) -> Limits:
        """Return the limits with each set field of `changes` in place."""
        return replace(self, **changes.as_dict())


@dataclass(frozen=True, slots=True)
class LimitChanges:
    """The limits a caller asked for; None = the default, or unchanged in a change."""

    memory_bytes: int | None = None
    cpus: float | None = None
    cpu_weight: int | None = None
    pids: int | None = None
    io_read_bytes_per_second: int | None = None
    io_write_bytes_per_second: int | None = None
    disk_bytes: int | None = None
    timeout_seconds: float | None = None
    cpu_seconds: float | None = None
    max_output_bytes: int | None = None
    open_files: int | None = None
    file_size_bytes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the set fields only."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in pairs if value is not None}


@dataclass(frozen=True, slots=True)
class Usage:
    """An execution's usage; None where this host cannot know."""

    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    cpu_user_seconds: float | None = None
    cpu_system_seconds: float | None = None
    cpu_throttled_seconds: float | None = None
    memory_peak_bytes: int | None = None
    pids_peak: int | None = None
    io_read_bytes: int | None = None
    io_written_bytes: int | None = None
    oom_kills: int | None = None
    pids_denied: int | None = None


@dataclass(frozen=True, slots=True)
class Pressure:
    """Shares of the last 10, 60 and 300 seconds, and the total, of stalled time.

    some: a task waited; full: all tasks waited (kernel: Documentation/accounting/psi.rst).
    """

    some_percent: tuple[float, float, float]
    some_seconds: float
    full_percent: tuple[float, float, float] | None = None
    full_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """A sandbox's usage, present and total; None where this host cannot know.

    of_running_only: CPU time and IO cover running executions; ended executions are to be added.
    """

    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_anon_bytes: int | None = None
    memory_file_bytes: int | None = None
    swap_bytes: int | None = None
    cpu_seconds: float | None = None
    cpu_throttled_seconds: float | None = None
    pids: int | None = None
    pids_peak: int | None = None
    io_read_bytes: int | None = None
    io_written_bytes: int | None = None
    disk_bytes: int | None = None
    pressure: Mapping[str, Pressure] | None = None
    of_running_only: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an execution: status, cause, owner of the limit, exit code or signal."""

    status: ExecutionStatus
    error_code: ErrorCode | None = None
    limit_owner: LimitOwner | None = None
    exit_code: int | None = None
    signal: int | None = None


Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """Kept bytes of a stream. truncated: the program wrote more."""

    size_bytes: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """A terminal's size in characters."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class Command:
    """A decoded command: argv is exact, cwd relative to the home or absolute."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    stdin: bytes | None = None
    stdin_open: bool = False
    tty: TerminalSize | None = None
    merge_output: bool = False
    kill_grace_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Caller:
    """The peer of the socket, as told by the kernel."""

    uid: int
    gid: int
    pid: int
    is_admin: bool

    def may_see(self, owner_uid: int) -> bool:
        """Return whether an object of `owner_uid` exists for this caller."""
        return self.is_admin or self.uid == owner_uid


class Ownership(enum.StrEnum):
    """The owners of a bind's files as seen inside.

    mapped: the owner's files belong to the sandbox, and the sandbox's new files to the owner. host:
    all files keep the host's ids.
    """

    MAPPED = "mapped"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path seen inside a sandbox."""

    source: str
    target: str
    writable: bool = False
    # The default serves records from before mapped binds. None: the root is not made yet.
    ownership: Ownership | None = Ownership.HOST
    ownership_detail: str = ""


@dataclass(slots=True)
class Sandbox:
    """A long-lived place for executions. Only the engine changes the fields."""

    id: str
    name: str | None
    owner_uid: int
    uid: int
    isolation: Isolation
    network: Network
    scheme: SchemeName
    limits: Limits
    enforcement: Mapping[str, Enforcement]
    created_at: datetime
    last_used_at: datetime
    env: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    state: SandboxState = SandboxState.READY
    unit: str | None = None
    expires_at: datetime | None = None
    # On the clock of ports.host.Clock.monotonic, immune to steps of the wall clock.
    expires_monotonic: float | None = None
    used_monotonic: float = 0.0
    released_monotonic: float = 0.0
    idle_timeout_seconds: float | None = None
    # Whether the caller named the executions' timeout; else the server's default applies.
    names_timeout: bool = False
    is_one_shot: bool = False
    # The cause of the release: executions end with this code, under the next daemon too.
    release_code: ErrorCode | None = None
    # The creating request, by which a retry finds the sandbox.
    request_id: str | None = None
    # Name of an image below the images folder, in place of the host's own /usr.
    rootfs: str | None = None
    binds: tuple[Bind, ...] = ()

    @property
    def has_own_root(self) -> bool:
        """Whether commands see a file system apart from the host's."""
        return self.isolation.has_own_root

    @property
    def writes_to_host(self) -> bool:
        """Whether commands can make files that outlive the sandbox."""
        return any(bind.writable for bind in self.binds)


@dataclass(slots=True)
class Execution:
    """A command run in a sandbox. Only the engine changes the fields."""

    id: str
    sandbox_id: str
    command: Command
    limits: Limits
    own_limits: frozenset[str]
    enforcement: Mapping[str, Enforcement]
    created_at: datetime
    unit: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: Outcome = field(default_factory=lambda: Outcome(ExecutionStatus.PENDING))
    usage: Usage = field(default_factory=Usage)
    stdout: OutputSummary = field(default_factory=OutputSummary)
    stderr: OutputSummary = field(default_factory=OutputSummary)
    leftovers_killed: int = 0
    unkillable: bool = False
    failure: str | None = None
    request_id: str | None = None
    # On the clock of ports.host.Clock.monotonic.
    finished_monotonic: float = 0.0

    @property
    def is_finished(self) -> bool:
        """Whether the outcome is final."""
        return self.outcome.status.is_final
