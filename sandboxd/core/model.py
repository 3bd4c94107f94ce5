# SPDX-License-Identifier: Apache-2.0
"""Plain values: limits, usage, sandboxes, executions and how they may change."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal


class SchemeName(enum.StrEnum):
    """A whole way to hold sandboxes."""

    SYSTEMD = "systemd"
    RLIMIT = "rlimit"


class Isolation(enum.StrEnum):
    """What stands between a command and the host, least first."""

    NONE = "none"
    BASIC = "basic"
    STANDARD = "standard"
    STRICT = "strict"


class Network(enum.StrEnum):
    """What a command may reach."""

    NONE = "none"
    LOOPBACK = "loopback"
    HOST = "host"


class SandboxState(enum.StrEnum):
    """ready <-> suspended; both -> releasing -> released; failed = a create that broke."""

    READY = "ready"
    SUSPENDED = "suspended"
    RELEASING = "releasing"
    RELEASED = "released"
    FAILED = "failed"


class ExecutionStatus(enum.StrEnum):
    """PENDING -> RUNNING -> exactly one of the others."""

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
    FAILED = "FAILED"
    LOST = "LOST"

    @property
    def is_final(self) -> bool:
        """Whether the execution is over."""
        return self not in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)


class LimitOwner(enum.StrEnum):
    """Whose limit ended an execution."""

    EXECUTION = "execution"
    SANDBOX = "sandbox"
    AGGREGATE = "aggregate"
    HOST = "host"


class ErrorCode(enum.StrEnum):
    """Why an execution ended, where its exit alone does not say it."""

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
    SETUP_FAILED = "EXECUTION_SETUP_FAILED"


class EventType(enum.StrEnum):
    """What happened."""

    SANDBOX_CREATED = "sandbox.created"
    SANDBOX_CHANGED = "sandbox.changed"
    SANDBOX_SUSPENDED = "sandbox.suspended"
    SANDBOX_RESUMED = "sandbox.resumed"
    SANDBOX_RELEASING = "sandbox.releasing"
    SANDBOX_RELEASED = "sandbox.released"
    EXECUTION_STARTED = "execution.started"
    EXECUTION_ENDED = "execution.ended"


class EnforcedBy(enum.StrEnum):
    """Who holds a limit."""

    KERNEL = "kernel"
    SUPERVISOR = "supervisor"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Who holds one limit, and how, in words an admin can check; and how precisely, where it is
    not the kernel."""

    by: EnforcedBy
    detail: str
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """A full set of limits on the sum of all processes; `cpu_seconds` None = no such limit. What
    each is: core/limits.py."""

    memory_bytes: int
    cpus: float
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
        """These limits with each set field of `changes` in place."""
        return replace(self, **changes.as_dict())


@dataclass(frozen=True, slots=True)
class LimitChanges:
    """What a caller asked for: None = the default (or, on a change, as it was)."""

    memory_bytes: int | None = None
    cpus: float | None = None
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
        """The set fields only."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in pairs if value is not None}


@dataclass(frozen=True, slots=True)
class Usage:
    """What an execution used; None where this host cannot know."""

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
    """Shares of the last 10, 60 and 300 seconds, and all time, in which somebody waited (some) or
    nobody got on (full): the kernel's Documentation/accounting/psi.rst."""

    some_percent: tuple[float, float, float]
    some_seconds: float
    full_percent: tuple[float, float, float] | None = None
    full_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """What a sandbox uses now and has used; None where this host cannot know.

    of_running_only: CPU time and IO are of running executions; those that ended come on top.
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
    """How an execution ended, for the program's sake."""

    status: ExecutionStatus
    error_code: ErrorCode | None = None
    limit_owner: LimitOwner | None = None
    exit_code: int | None = None
    signal: int | None = None


Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """How much of one stream is kept; `truncated`: the program wrote more."""

    size_bytes: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """In characters."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, after decoding: argv is exact, cwd relative to the home or absolute."""

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
    """Who is at the other end of the socket, by the kernel's word."""

    uid: int
    gid: int
    pid: int
    is_admin: bool

    def may_see(self, owner_uid: int) -> bool:
        """Whether a thing of `owner_uid` exists for this caller."""
        return self.is_admin or self.uid == owner_uid


class Ownership(enum.StrEnum):
    """Whose the files of a bind are inside: the owner's are the sandbox's, and what the sandbox
    makes is the owner's, or all have the ids that the host knows."""

    MAPPED = "mapped"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Bind:
    """A path of the host's, seen inside a sandbox."""

    source: str
    target: str
    writable: bool = False
    # As in records of a time when nothing was mapped. None: its root was not made yet.
    ownership: Ownership | None = Ownership.HOST
    ownership_detail: str = ""


@dataclass(slots=True)
class Sandbox:
    """A long-lived place for executions. Only the engine changes it."""

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
    # On the clock of ports.host.Clock.monotonic: steps of the wall clock do not move it.
    expires_monotonic: float | None = None
    used_monotonic: float = 0.0
    released_monotonic: float = 0.0
    idle_timeout_seconds: float | None = None
    # Whether the timeout of its executions was asked for, and is not the server's default.
    names_timeout: bool = False
    is_one_shot: bool = False
    # Why it is released: its executions are ended for that, by the next daemon as well.
    release_code: ErrorCode | None = None
    # The request that made it: a retry of the same request finds it by this.
    request_id: str | None = None
    # Name of an image below the images folder, in place of the host's own /usr.
    rootfs: str | None = None
    binds: tuple[Bind, ...] = ()

    @property
    def has_own_root(self) -> bool:
        """Whether its commands see another file system than the host's."""
        return self.isolation not in (Isolation.NONE, Isolation.BASIC)

    @property
    def writes_as_owner(self) -> bool:
        """Whether files that its commands make in a bind belong to the bind's owner."""
        return any(b.writable and b.ownership is not Ownership.HOST for b in self.binds)


@dataclass(slots=True)
class Execution:
    """One command run in a sandbox. Only the engine changes it."""

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
