# SPDX-License-Identifier: Apache-2.0
"""What the engine asks of the world. The consumer owns these; the doors and schemes fit them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sandboxd.file_ports import SandboxFiles
from sandboxd.model import (
    Enforcement,
    ErrorCode,
    Execution,
    Limits,
    Sandbox,
    SandboxUsage,
    SchemeName,
)
from sandboxd.outcome import Facts
from sandboxd.sums import Past


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime:
        """The wall clock, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, the same for every process of this boot."""
        ...


class Input(Protocol):
    """Where a running command's standard input can be written to."""

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal, which has no end of input but a character for it."""
        ...

    def end_character(self) -> bytes:
        """That character."""
        ...

    async def write(self, data: memoryview) -> int:
        """Write something of `data`, once there is room; returns how much. Raises StdinClosed."""
        ...


class Shim(Protocol):
    """A running shim: one execution's trusted parent."""

    @property
    def pid(self) -> int:
        """Its pid in the host's namespace."""
        ...

    @property
    def evidence_directory(self) -> str:
        """Where a supervisor may tell it what it did; gone with it."""
        ...

    @property
    def pidfd(self) -> int:
        """A pidfd of it; readable once it ended."""
        ...

    async def go(self) -> datetime:
        """Start the command; after its exec returns when that was. Raises ExecutionNotStarted."""
        ...

    async def started(self) -> datetime | None:
        """When the command of a shim that was found running was started; None if it was not."""
        ...

    async def abort(self) -> None:
        """Give up before `go`; returns when the shim is gone."""
        ...

    async def kill(self, code: ErrorCode, *, grace_seconds: float) -> None:
        """End the command; the end itself is told by `ended`."""
        ...

    async def signal(self, number: int) -> None:
        """Send a signal to the main process."""
        ...

    def destroy(self) -> None:
        """SIGKILL a shim that does not answer, and its pid namespace with it."""
        ...

    async def freeze(self) -> None:
        """Stop every process of the execution; its clock stands still."""
        ...

    async def thaw(self) -> None:
        """Let it go on."""
        ...

    async def input(self) -> Input | None:
        """Where its standard input can be written to; None where it is not open (any more).

        Raises ExecutionFinished.
        """
        ...

    async def close_input(self) -> None:
        """Let the command see the end of its input."""
        ...

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of its terminal."""
        ...

    async def ended(self) -> Facts | None:
        """Wait for the end: the record, or None when the shim died without one."""
        ...

    async def gone(self, *, timeout_seconds: float) -> bool:
        """Wait until the shim's process, and so its pid namespace, is gone."""
        ...


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything a shim must know. identity_files: path inside -> file to be seen there."""

    sandbox: Sandbox
    execution: Execution
    rlimits: Mapping[str, tuple[int, int]]
    env: Mapping[str, str]
    cwd: str
    record_directory: str
    tmp_directory: str
    identity_files: Mapping[str, str]
    private_mounts: bool


class Launcher(Protocol):
    """Starts shims, and finds those that an earlier daemon started."""

    async def launch(self, request: LaunchRequest) -> Shim:
        """A held shim that reported "ready"."""
        ...

    async def attach(
        self, sandbox_id: str, execution_id: str, record_directory: str
    ) -> Shim | None:
        """The live shim of an execution of an earlier daemon; None when there is none."""
        ...

    def read_record(self, record_directory: str) -> Facts | None:
        """The record of an execution whose shim is gone; None when it left none."""
        ...

    async def upkeep(self) -> None:
        """See that shims can be started, before somebody asks for one; called every second."""
        ...


class Scheme(Protocol):
    """A whole way to hold sandboxes."""

    @property
    def name(self) -> SchemeName:
        """Which one."""
        ...

    @property
    def reason(self) -> str:
        """Why this one was chosen, for people."""
        ...

    def sandbox_unit(self, sandbox_id: str) -> str | None:
        """Name of the sandbox's slice; None where there are no units."""
        ...

    def execution_unit(self, sandbox_id: str, execution_id: str) -> str | None:
        """Name of the execution's scope; None where there are no units."""
        ...

    def enforcement(self, limits: Limits) -> Mapping[str, Enforcement]:
        """Who holds each limit of a sandbox and its executions, and how."""
        ...

    def rlimits(self, limits: Limits) -> Mapping[str, tuple[int, int]]:
        """resource-module name -> (soft, hard) for the command itself."""
        ...

    def environment(self, sandbox: Sandbox, limits: Limits) -> Mapping[str, str]:
        """What a command's environment should say of its limits; a caller's own goes before."""
        ...

    async def create_sandbox(self, sandbox: Sandbox) -> None:
        """Make the place, limits in force; on an error nothing is left."""
        ...

    async def place(self, sandbox: Sandbox, execution: Execution, shim: Shim) -> None:
        """Put a held shim under the execution's limits; on an error it is under none."""
        ...

    async def collect(self, sandbox: Sandbox, execution: Execution) -> None:
        """Remove what an execution whose shim is gone left; fine where it was never placed."""
        ...

    async def change_limits(
        self,
        sandbox: Sandbox,
        limits: Limits,
        executions: Collection[tuple[Execution, Limits]],
    ) -> None:
        """Put new limits on a sandbox and its running executions, and read them back."""
        ...

    async def suspend_sandbox(self, sandbox: Sandbox) -> None:
        """Its shims are about to stop everything in it: nobody else may let anything go on."""
        ...

    async def resume_sandbox(self, sandbox: Sandbox) -> None:
        """Its shims let everything in it go on."""
        ...

    async def upkeep(self) -> None:
        """Look after what holds the limits; called about once a second."""
        ...

    def memory_current(self, sandbox: Sandbox) -> int | None:
        """Bytes the sandbox uses now; None where this host cannot know."""
        ...

    async def usage(self, sandbox: Sandbox) -> SandboxUsage:
        """What the sandbox uses and has used."""
        ...

    async def execution_usages(
        self, sandbox: Sandbox, executions: Collection[Execution]
    ) -> Mapping[str, SandboxUsage]:
        """What each of its running executions uses and has used: id -> usage, as far as known."""
        ...

    async def kill_sandbox(self, sandbox: Sandbox) -> None:
        """SIGKILL everything in the sandbox, shims included."""
        ...

    async def release_sandbox(self, sandbox: Sandbox) -> None:
        """Remove the empty place; returns when it is gone."""
        ...

    async def adopt_sandbox(self, sandbox: Sandbox, execution_ids: Collection[str]) -> bool:
        """Whether the place of an earlier daemon is still there. What it holds of executions other
        than these counts no longer."""
        ...

    async def without_place(self, sandboxes: Collection[Sandbox]) -> Collection[str]:
        """Ids of those of these sandboxes whose place somebody else took away."""
        ...

    async def sweep(self, sandbox: Sandbox) -> None:
        """SIGKILL what runs in a sandbox in which no execution does; none may start unnoticed."""
        ...

    async def clear_strays(self) -> Iterable[str]:
        """Remove this instance's places that belong to nobody, once a second call finds them
        again; what was removed."""
        ...

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> Iterable[str]:
        """Remove this instance's places that belong to none of the sandboxes; their units."""
        ...


class Roots(Protocol):
    """What a sandbox has of its own beside its directories: network, root, ipc."""

    async def build(
        self, sandbox: Sandbox, *, home: str, tmp: str, files: Mapping[str, str]
    ) -> None:
        """Make what its isolation and network ask for, unless it is there; files: path inside ->
        file. Raises InvalidRequest for an image that cannot be used; on an error nothing is left.
        """
        ...

    async def remove(self, sandbox: Sandbox) -> None:
        """Let go of it; fine where there is none."""
        ...

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """What an earlier daemon made for sandboxes that are not among these."""
        ...


class Workspaces(Protocol):
    """Directories on disk."""

    async def create(self, sandbox: Sandbox) -> None:
        """Home and tmp of a sandbox, owned by its uid. Raises HostDiskFull."""
        ...

    async def create_execution(self, sandbox_id: str, execution_id: str) -> None:
        """The record directory of an execution."""
        ...

    async def remove_execution(self, sandbox_id: str, execution_id: str) -> None:
        """Record and output of an execution."""
        ...

    async def execution_ids(self, sandbox_id: str) -> Collection[str]:
        """Those that have a directory, records that can be read or not."""
        ...

    async def discard_execution(self, sandbox_id: str, execution_id: str) -> None:
        """As `remove_execution`, but a record that was set aside stays with all there is."""
        ...

    async def remove_contents(self, sandbox_id: str) -> None:
        """Home and tmp, whatever is in them; records stay."""
        ...

    async def remove(self, sandbox_id: str) -> None:
        """Everything of a sandbox."""
        ...

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Everything of sandboxes that were half made or half removed."""
        ...

    def holds_disk(self, sandbox_id: str) -> bool:
        """Whether the kernel holds its disk limit; else it has to be found and ended when over."""
        ...

    def has_own_disk(self, sandbox_id: str) -> bool:
        """Whether its files are on a file system of its own, which is full when its limit is
        reached."""
        ...

    def disk_enforcement(self) -> Enforcement:
        """Who holds disk limits of new sandboxes here, and how."""
        ...

    async def limit_disk(self, sandbox: Sandbox, size_bytes: int) -> None:
        """Have the kernel hold the sandbox to so many bytes, where it can. `create` did so.

        Raises LimitBelowUsage where what it has cannot be made less than is in use.
        """
        ...

    async def lift_disk_limit(self, uid: int) -> None:
        """Free a uid of it, once the sandbox's files are gone and before it is given back."""
        ...

    async def disk_used(self, sandbox: Sandbox) -> tuple[int, float]:
        """Bytes on disk of a sandbox's files, and the seconds of processor time that finding it out
        took. Raises OSError."""
        ...

    async def disk_growth(self) -> int:
        """Bytes by which the whole file system has grown so far; what shrank it is left out."""
        ...

    def files(self, sandbox: Sandbox, take: Callable[[int], Awaitable[None]]) -> SandboxFiles:
        """The files in its home, for the API. take: asked before so many bytes are written."""
        ...

    def home(self, sandbox_id: str) -> str:
        """Path of the home."""
        ...

    def tmp(self, sandbox_id: str) -> str:
        """Path of the directory seen as /tmp."""
        ...

    def identity_files(self, sandbox: Sandbox) -> Mapping[str, str]:
        """/etc/passwd and /etc/group with the sandbox's uid in them: path inside -> file."""
        ...

    def record_directory(self, sandbox_id: str, execution_id: str) -> str:
        """Path of an execution's record directory."""
        ...

    def output_size(self, sandbox_id: str, execution_id: str, stream: str) -> int:
        """Bytes of a spool so far; 0 where there is none."""
        ...

    async def read_output(
        self, sandbox_id: str, execution_id: str, stream: str, offset: int, size: int
    ) -> bytes:
        """Bytes of a spool."""
        ...

    def watch_output(
        self, sandbox_id: str, execution_id: str, ring: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """While entered, `ring` is called after each write to one of its spools."""
        ...


class Uids(Protocol):
    """Host uids for sandboxes."""

    async def take(self, sandbox_id: str) -> int:
        """A uid that nobody else has. Raises CapacityExceeded."""
        ...

    async def give_back(self, uid: int) -> bool:
        """Free it once no process has it; False when one still does."""
        ...

    async def busy(self, uids: Collection[int]) -> Collection[int]:
        """Those of these uids that a process has; none where sandboxes have no uid of their own."""
        ...

    async def reclaim(self, uid: int, sandbox_id: str) -> None:
        """Hold again a uid taken by an earlier daemon."""
        ...

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Free what an earlier daemon took for sandboxes that are not among these."""
        ...


class Store(Protocol):
    """Records of sandboxes and executions on disk."""

    async def save_sandbox(self, sandbox: Sandbox) -> None:
        """Write whole or not at all. Raises HostDiskFull."""
        ...

    async def save_execution(self, execution: Execution) -> None:
        """Write whole or not at all. Raises HostDiskFull."""
        ...

    async def save_draining(self, draining: bool) -> None:
        """Whether the host takes no new work. Raises HostDiskFull."""
        ...

    async def load_draining(self) -> bool:
        """What was saved last."""
        ...

    async def load(self) -> list[tuple[Sandbox, list[Execution]]]:
        """Everything that is there; unreadable records are reported and set aside."""
        ...


class PastStore(Protocol):
    """The history on disk."""

    async def load(self) -> Past | None:
        """What was saved; None where that is nothing or cannot be read, which is reported."""
        ...

    async def save(self, past: Past) -> None:
        """Add its intervals, all of them or none; the oldest above the bound go. Raises
        HostDiskFull."""
        ...


@dataclass(frozen=True, slots=True)
class KeptKey:
    """An Idempotency-Key of one caller. status: of the first answer, None while there is none.

    at: when it came, then when it was answered, in seconds of the wall clock.
    """

    uid: int
    name: str
    fingerprint: str
    request_id: str
    at: float
    status: int | None = None
    size_bytes: int = 0
