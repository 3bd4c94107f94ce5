# SPDX-License-Identifier: Apache-2.0
"""The ports for limits and isolation."""

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
    """A complete mechanism for limits."""

    @property
    def name(self) -> SchemeName:
        """The scheme's name."""

    @property
    def reason(self) -> str:
        """Why this scheme was chosen, in words."""

    @property
    def holds_all_tasks(self) -> bool:
        """Whether the kernel limits all sandboxes' tasks together: no admission check then."""

    @property
    def held_by_kernel(self) -> bool:
        """Whether the kernel holds the limits of a sandbox as a whole, and no supervisor."""

    def sandbox_unit(self, sandbox_id: str) -> str | None:
        """Return the name of the sandbox's slice; None without units."""

    def execution_unit(self, sandbox_id: str, execution_id: str) -> str | None:
        """Return the name of the execution's scope; None without units."""

    def execution_cgroup(self, sandbox_id: str, execution_id: str) -> str | None:
        """Path of the execution's cgroup, from the name of the one that all sandboxes are in; its
        parent is the sandbox's. None where there is none."""

    def enforcement(self) -> Mapping[str, Enforcement]:
        """Return the enforcement of each limit of a sandbox and the sandbox's executions."""

    def rlimits(self, limits: Limits) -> Mapping[str, tuple[int, int]]:
        """Return the command's own rlimits: name in the resource module -> (soft, hard)."""

    def environment(self, limits: Limits) -> Mapping[str, str]:
        """Return variables that tell a command its limits; the caller's variables win."""

    async def create_sandbox(self, sandbox: Sandbox) -> None:
        """Make a sandbox's place with the limits in force; on an error no trace is left."""

    async def place(self, sandbox: Sandbox, execution: Execution, shim: Shim) -> None:
        """Put a held shim under the execution's limits; on an error no limit applies."""

    async def collect(self, sandbox: Sandbox, execution: Execution) -> None:
        """Remove what is left of an execution without a shim; a never placed one is no error."""

    async def change_limits(
        self,
        sandbox: Sandbox,
        limits: Limits,
        executions: Collection[tuple[Execution, Limits]],
    ) -> None:
        """Set new limits of a sandbox and the running executions, and read the limits back."""

    async def suspend_sandbox(self, sandbox: Sandbox) -> None:
        """Prepare a suspend: the shims freeze all processes, and no process may be thawed."""

    async def resume_sandbox(self, sandbox: Sandbox) -> None:
        """End a suspend: the shims thaw all processes."""

    async def upkeep(self) -> None:
        """Maintain the mechanism; called about once a second."""

    def memory_current(self, sandbox: Sandbox) -> int | None:
        """Return the sandbox's present memory use in bytes; None if this host cannot know."""

    async def usage(self, sandbox: Sandbox) -> SandboxUsage:
        """Return the sandbox's usage, present and total."""

    async def execution_usages(
        self, sandbox: Sandbox, executions: Collection[Execution]
    ) -> Mapping[str, SandboxUsage]:
        """Return the usage of running executions as far as known: id -> usage."""

    async def kill_sandbox(self, sandbox: Sandbox) -> None:
        """SIGKILL every process in the sandbox, shims included."""

    async def release_sandbox(self, sandbox: Sandbox) -> None:
        """Remove the empty place; return once gone."""

    async def adopt_sandbox(self, sandbox: Sandbox, execution_ids: Collection[str]) -> bool:
        """Return whether the place still exists; executions outside `execution_ids` are dropped."""

    async def without_place(self, sandboxes: Collection[Sandbox]) -> Collection[str]:
        """Return the ids of sandboxes whose place was removed from outside."""

    async def sweep(self, sandbox: Sandbox) -> None:
        """SIGKILL all processes of a sandbox, unless an execution was placed meanwhile."""

    async def clear_strays(self) -> Iterable[str]:
        """Remove this instance's places without an owner, found by two calls; return the names."""

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> Iterable[str]:
        """Remove this instance's places of sandboxes outside `sandbox_ids`; return the units."""


class Roots(Protocol):
    """A sandbox's own network, root and ipc namespace."""

    async def build(
        self, sandbox: Sandbox, *, home: str, tmp_directory: str, identity_files: Mapping[str, str]
    ) -> tuple[Bind, ...]:
        """Make the namespaces and the root of a sandbox, unless present; return the binds.

        The binds carry the ownership found. identity_files: path inside -> file. Raises
        InvalidRequest for an unusable image; on an error no trace is left.
        """

    async def remove(self, sandbox: Sandbox) -> None:
        """Remove a sandbox's namespaces and root; absent ones are no error."""

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Remove the remains of sandboxes outside `sandbox_ids`."""
