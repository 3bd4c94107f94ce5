# SPDX-License-Identifier: Apache-2.0
"""What starts an execution, and what is held of it while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sandboxd.core.model import ErrorCode, Execution, Sandbox
from sandboxd.core.outcome import Facts


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

    async def signal(self, number: int, *, group: bool) -> None:
        """Send a signal to the main process, or to its whole group."""
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
    """Everything a shim must know. identity_files: path inside -> file to be seen there.
    terminals: how many may be open in its devpts. spool_floor_bytes: what large output leaves free
    on the file system.
    """

    sandbox: Sandbox
    execution: Execution
    rlimits: Mapping[str, tuple[int, int]]
    env: Mapping[str, str]
    cwd: str
    record_directory: str
    tmp_directory: str
    identity_files: Mapping[str, str]
    private_mounts: bool
    terminals: int
    spool_floor_bytes: int = 0


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
