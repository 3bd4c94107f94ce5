# SPDX-License-Identifier: Apache-2.0
"""What the API asks of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Literal, Protocol

from sandboxd.core.entries import NewFile
from sandboxd.core.model import Caller, Execution, LimitChanges, Sandbox, TerminalSize
from sandboxd.core.times import OutputTimes
from sandboxd.engine.batch import Reading
from sandboxd.engine.events import Events
from sandboxd.engine.history import Told
from sandboxd.engine.life import Counters
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.engine.requests import (
    ExecutionRequest,
    HostReport,
    Progress,
    SandboxReport,
    SandboxRequest,
)

Stream = Literal["stdout", "stderr"]


class Engine(Protocol):
    """Sandboxes and executions. `ref` is a sandbox's id, or its owner's name for it.

    What the caller may not see does not exist: SandboxNotFound, ExecutionNotFound.
    """

    @property
    def is_ready(self) -> bool:
        """Whether it takes work."""
        ...

    @property
    def events(self) -> Events:
        """What happened lately; `owner_uid` says who may see it."""
        ...

    async def history(self) -> Told:
        """What was used, ended and refused by the minute, until now."""
        ...

    def note_refusal(self, uid: int, code: str) -> None:
        """An error was answered."""
        ...

    @property
    def counters(self) -> Counters:
        """Sums over all callers."""
        ...

    def host(self, caller: Caller | None = None) -> HostReport:
        """What this host can do, and how much of it is taken, by a caller that is no admin."""
        ...

    async def set_draining(self, *, draining: bool) -> HostReport:
        """Take no new work, or take it again."""
        ...

    async def create_sandbox(self, caller: Caller, request: SandboxRequest) -> Sandbox:
        """A new sandbox, ready."""
        ...

    def get_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        """One sandbox."""
        ...

    def list_sandboxes(self, caller: Caller) -> list[Sandbox]:
        """All the caller may see."""
        ...

    async def usage(self, caller: Caller, ref: str, *, by_execution: bool = False) -> SandboxReport:
        """What it uses and has used, and if asked each of its running executions."""
        ...

    async def change_sandbox(
        self,
        caller: Caller,
        ref: str,
        changes: LimitChanges,
        *,
        metadata: Mapping[str, str] | None,
        lifetime_seconds: float | None,
        idle_timeout_seconds: float | None,
        force: bool,
    ) -> Sandbox:
        """Change it live; None = as it was."""
        ...

    async def release_sandbox(self, caller: Caller, ref: str) -> None:
        """Returns once everything of it is gone; also the second time."""
        ...

    async def suspend_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        """Freeze every process in it."""
        ...

    async def resume_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        """Let them go on."""
        ...

    async def start_execution(
        self, caller: Caller, ref: str, request: ExecutionRequest
    ) -> Execution:
        """Returns once the exec succeeded."""
        ...

    async def run(
        self,
        caller: Caller,
        sandbox: SandboxRequest,
        execution: ExecutionRequest,
        files: tuple[NewFile, ...] = (),
        reading: Reading | None = None,
    ) -> Execution:
        """An execution in a sandbox that lives as long as it, and until its files are read; returns
        once the exec succeeded."""
        ...

    def get_execution(self, caller: Caller, ref: str, execution_id: str) -> Execution:
        """One execution."""
        ...

    def list_executions(self, caller: Caller, ref: str | None = None) -> list[Execution]:
        """All the caller may see, or those of one sandbox."""
        ...

    async def wait_execution(
        self, caller: Caller, ref: str, execution_id: str, timeout_seconds: float | None
    ) -> Execution:
        """The finished execution, or after the timeout as it is then. May be cancelled."""
        ...

    async def kill_execution(
        self,
        caller: Caller,
        ref: str,
        execution_id: str,
        *,
        signal: int | None,
        group: bool,
        grace_seconds: float,
    ) -> Execution:
        """End it, or only send `signal`, to its main process or to the whole group of that."""
        ...

    async def write_input(
        self,
        caller: Caller,
        ref: str,
        execution_id: str,
        chunks: AsyncIterator[bytes],
        progress: Progress,
    ) -> None:
        """Write to its standard input, as fast as the program reads it. May be cancelled."""
        ...

    async def close_input(self, caller: Caller, ref: str, execution_id: str) -> None:
        """End its standard input; also the second time."""
        ...

    async def resize_terminal(
        self, caller: Caller, ref: str, execution_id: str, size: TerminalSize
    ) -> None:
        """Change its terminal's size."""
        ...

    async def read_output(
        self, execution: Execution, stream: Stream, offset: int, size: int
    ) -> bytes:
        """Up to `size` bytes of what is there now."""
        ...

    async def output_times(self, execution: Execution, stream: Stream) -> OutputTimes | None:
        """When what is there now came; None where nobody knows."""
        ...

    def follow(
        self, caller: Caller, ref: str, execution_id: str
    ) -> AbstractContextManager[asyncio.Event]:
        """An event that is set whenever there may be more output, and at the end; who waits for it
        clears it before looking."""
        ...

    def files(self, caller: Caller, ref: str) -> AbstractAsyncContextManager[SandboxFiles]:
        """The files in a sandbox's home, while the context is open. Raises SandboxReleased, also
        when it is released meanwhile, and QuotaExceeded."""
        ...
