# SPDX-License-Identifier: Apache-2.0
"""The port for the directories of sandboxes and executions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from sandboxd.core.model import Enforcement, Sandbox
from sandboxd.core.times import OutputTimes
from sandboxd.engine.ports.files import SandboxFiles


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of a file system: free space, and the floor to leave free for new sandboxes."""

    free_bytes: int
    floor_bytes: int


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes on disk of a sandbox's files, and the processor time of the count in seconds.

    obstacle: why the count is incomplete, in words; then used_bytes is a lower bound.
    """

    used_bytes: int
    took_seconds: float = 0.0
    obstacle: str | None = None


class Workspaces(Protocol):
    """Directories on disk."""

    async def create(self, sandbox: Sandbox) -> None:
        """Make home and tmp, owned by the sandbox's uid. Raises HostDiskFull, HostStorageFailed."""

    async def create_execution(self, sandbox_id: str, execution_id: str) -> None:
        """Make the record directory of an execution."""

    async def remove_execution(self, sandbox_id: str, execution_id: str) -> None:
        """Remove record and output of an execution."""

    async def execution_ids(self, sandbox_id: str) -> Collection[str]:
        """Return the ids of executions with a directory, readable record or not."""

    async def discard_execution(self, sandbox_id: str, execution_id: str) -> None:
        """As `remove_execution`, but keep the directory of a record set aside."""

    async def remove_contents(self, sandbox: Sandbox) -> None:
        """Remove home and tmp with all contents; records stay."""

    async def remove(self, sandbox_id: str) -> None:
        """Remove all files of a sandbox."""

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Remove all files of sandboxes outside `sandbox_ids`: half made or half removed."""

    def holds_disk(self, sandbox_id: str) -> bool:
        """Return whether the kernel enforces the disk limit; else the engine counts and ends."""

    def has_own_disk(self, sandbox_id: str) -> bool:
        """Return whether the files are on the sandbox's own file system, full at the limit."""

    def disk_enforcement(self) -> Enforcement:
        """Return the enforcement of new sandboxes' disk limits."""

    async def limit_disk(self, sandbox: Sandbox, size_bytes: int) -> None:
        """Set the kernel's disk limit in bytes, where possible. Raises LimitBelowUsage."""

    async def lift_disk_limit(self, uid: int) -> None:
        """Remove the disk limit of a uid, after the removal of files and before `give_back`."""

    async def disk_used(self, sandbox: Sandbox) -> DiskUse:
        """Return the disk use of a sandbox's files. Raises OSError."""

    async def disk_growth(self) -> int:
        """Return the total growth of the whole file system in bytes, without shrinkage."""

    def files(
        self,
        sandbox: Sandbox,
        take: Callable[[int], Awaitable[None]],
        *,
        caller_uid: int,
        private_tmp: bool,
    ) -> SandboxFiles:
        """Return a sandbox's files for the API.

        take: called with the number of bytes before each write. caller_uid: the owner of the turn.
        private_tmp: whether the programs' /tmp is the sandbox's own.
        """

    def home(self, sandbox_id: str) -> str:
        """Return the path of the home."""

    def tmp(self, sandbox_id: str) -> str:
        """Return the path of the directory seen as /tmp."""

    def identity_files(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Return /etc/passwd and /etc/group with the sandbox's uid: path inside -> file."""

    async def follow_host(self, sandbox: Sandbox) -> None:
        """Update the identity files from the host, for a sandbox with the host's network."""

    def record_directory(self, sandbox_id: str, execution_id: str) -> str:
        """Return the path of an execution's record directory."""

    def output_size(self, sandbox_id: str, execution_id: str, stream: str) -> int:
        """Return the present bytes of a spool; 0 if absent."""

    @property
    def floor_bytes(self) -> int:
        """Free space to leave for new sandboxes."""

    async def room(self) -> Room:
        """Return the free space of the file system with the output."""

    async def read_output(
        self, sandbox_id: str, execution_id: str, stream: str, offset: int, size: int
    ) -> bytes:
        """Return bytes of a spool."""

    async def output_times(
        self, sandbox_id: str, execution_id: str, stream: str
    ) -> OutputTimes | None:
        """Return the times of a spool's output; None if unknown."""

    def watch_output(
        self, sandbox_id: str, execution_id: str, ring: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """While entered, call `ring` after each write to a spool of the execution."""
