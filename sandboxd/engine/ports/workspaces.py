# SPDX-License-Identifier: Apache-2.0
"""Directories of sandboxes and executions."""

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
    """Bytes of a file system: free ones, and those that are to be left for new sandboxes."""

    free_bytes: int
    floor_bytes: int


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes on disk of a sandbox's files, and the seconds of processor time that this took.

    obstacle: why not all could be counted, in words; then `used_bytes` are the least.
    """

    used_bytes: int
    took_seconds: float = 0.0
    obstacle: str | None = None


class Workspaces(Protocol):
    """Directories on disk."""

    async def create(self, sandbox: Sandbox) -> None:
        """Home and tmp of a sandbox, owned by its uid. Raises HostDiskFull, HostStorageFailed."""
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

    async def remove_contents(self, sandbox: Sandbox) -> None:
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

    async def disk_used(self, sandbox: Sandbox) -> DiskUse:
        """What a sandbox's files take on disk. Raises OSError."""
        ...

    async def disk_growth(self) -> int:
        """Bytes by which the whole file system has grown so far; what shrank it is left out."""
        ...

    def files(
        self,
        sandbox: Sandbox,
        take: Callable[[int], Awaitable[None]],
        *,
        caller_uid: int,
        private_tmp: bool,
    ) -> SandboxFiles:
        """Its files, for the API. take: asked before so many bytes are written. caller_uid: in
        whose turn. private_tmp: whether what its programs call /tmp is the sandbox's own."""
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

    async def follow_host(self, sandbox: Sandbox) -> None:
        """Have them say what the host's say by now, where it has the host's network."""
        ...

    def record_directory(self, sandbox_id: str, execution_id: str) -> str:
        """Path of an execution's record directory."""
        ...

    def output_size(self, sandbox_id: str, execution_id: str, stream: str) -> int:
        """Bytes of a spool so far; 0 where there is none."""
        ...

    @property
    def floor_bytes(self) -> int:
        """What is to be left free there for new sandboxes."""
        ...

    async def room(self) -> Room:
        """What is free where output is kept."""
        ...

    async def read_output(
        self, sandbox_id: str, execution_id: str, stream: str, offset: int, size: int
    ) -> bytes:
        """Bytes of a spool."""
        ...

    async def output_times(
        self, sandbox_id: str, execution_id: str, stream: str
    ) -> OutputTimes | None:
        """When what is in a spool came; None where nobody knows."""
        ...

    def watch_output(
        self, sandbox_id: str, execution_id: str, ring: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """While entered, `ring` is called after each write to one of its spools."""
        ...
