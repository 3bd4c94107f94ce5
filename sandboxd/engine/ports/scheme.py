# SPDX-License-Identifier: Apache-2.0
"""What holds limits and isolation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from sandboxd.core.model import (
    Bind,
    Enforcement,
    Execution,
    Limits,
    Sandbox,
    SandboxUsage,
    SchemeName,
)
from sandboxd.engine.ports.launch import Shim


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

    @property
    def holds_all_tasks(self) -> bool:
        """Whether nothing has to be promised before for all sandboxes together to have no more
        processes and threads than they may."""
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
    ) -> tuple[Bind, ...]:
        """Make what its isolation and network ask for, unless it is there; files: path inside ->
        file. The answer: its binds, with what became of their owners. Raises InvalidRequest for an
        image that cannot be used; on an error nothing is left.
        """
        ...

    async def remove(self, sandbox: Sandbox) -> None:
        """Let go of it; fine where there is none."""
        ...

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """What an earlier daemon made for sandboxes that are not among these."""
        ...
