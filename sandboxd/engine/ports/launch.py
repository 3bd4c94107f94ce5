# SPDX-License-Identifier: Apache-2.0
"""The ports to start an execution and to control a running execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sandboxd.core.model import ErrorCode, Execution, Sandbox
from sandboxd.core.outcome import Facts


class Input(Protocol):
    """The writable end of a running command's standard input."""

    @property
    def is_terminal(self) -> bool:
        """Whether the input is a terminal, which has an end character instead of an end of file."""
        ...

    def end_character(self) -> bytes:
        """Return the terminal's end character."""
        ...

    async def write(self, data: memoryview) -> int:
        """Write a part of `data` once there is room; return its length. Raises StdinClosed."""
        ...


class Shim(Protocol):
    """A running shim: an execution's trusted parent."""

    @property
    def pid(self) -> int:
        """The shim's pid in the host's pid namespace."""
        ...

    @property
    def evidence_directory(self) -> str:
        """Directory in which a supervisor reports its kills to the shim; gone with the shim."""
        ...

    @property
    def pidfd(self) -> int:
        """A pidfd of the shim; readable after the shim's end."""
        ...

    async def go(self) -> datetime:
        """Start the command; return the time of the exec. Raises ExecutionNotStarted."""
        ...

    async def started(self) -> datetime | None:
        """Return the command's start time for an adopted shim; None if not started."""
        ...

    async def abort(self) -> None:
        """End a shim before `go`; return once the shim is gone."""
        ...

    async def kill(self, code: ErrorCode, *, grace_seconds: float) -> bool:
        """Order the shim to kill the command; `ended` reports the end.

        False where the shim cannot be reached: either at its end or out of reach for good.
        """
        ...

    async def signal(self, number: int, *, group: bool) -> None:
        """Send a signal to the main process, or to the main process's group."""
        ...

    async def destroy(self) -> None:
        """SIGKILL an unresponsive shim and all processes below, by pid namespace or descent.

        A shim with a descendant that does not die is kept, for another call.
        """
        ...

    async def freeze(self) -> None:
        """Stop every process of the execution, and the execution's clock."""
        ...

    async def thaw(self) -> None:
        """Continue the execution's processes and clock."""
        ...

    async def input(self) -> Input | None:
        """Return the writable end of standard input; None if closed. Raises ExecutionFinished."""
        ...

    async def close_input(self) -> None:
        """Give the command the end of input."""
        ...

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of the execution's terminal, in characters."""
        ...

    async def ended(self) -> Facts | None:
        """Wait for the end; return the record, or None if the shim died without a record."""
        ...

    async def gone(self, *, timeout_seconds: float) -> bool:
        """Wait until the shim's process and pid namespace are gone; False after the timeout."""
        ...


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The parameters of a shim.

    identity_files: path inside the sandbox -> file. cgroup: the result of Scheme.execution_cgroup.
    is_supervised: whether a supervisor judges beside the shim. terminals: maximum of open terminals
    in the execution's devpts. spool_floor_bytes: free space on the file system that large output
    must leave.
    """

    sandbox: Sandbox
    execution: Execution
    cgroup: str | None
    is_supervised: bool
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
    """Starts shims and finds the shims of an earlier daemon."""

    async def launch(self, request: LaunchRequest) -> Shim:
        """Return a held shim that reported "ready"."""
        ...

    async def attach(
        self, sandbox_id: str, execution_id: str, record_directory: str
    ) -> Shim | None:
        """Return the live shim of an earlier daemon's execution; None if gone."""
        ...

    def read_record(self, record_directory: str) -> Facts | None:
        """Return the record of an execution whose shim is gone; None if absent."""
        ...

    async def upkeep(self) -> None:
        """Keep the launcher ready before the next request; called every second."""
        ...
