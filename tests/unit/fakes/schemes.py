# SPDX-License-Identifier: Apache-2.0
"""What holds limits and roots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sandboxd.core.model import (
    Bind,
    EnforcedBy,
    Enforcement,
    Execution,
    Limits,
    Ownership,
    Sandbox,
    SandboxUsage,
    SchemeName,
)
from sandboxd.engine.ports.launch import Shim
from sandboxd.schemes import common
from tests.unit.fakes.world import World

_FILES = {"memory_bytes": "memory.max", "cpus": "cpu.max", "cpu_weight": "cpu.weight",
          "pids": "pids.max"}  # fmt: skip
_UNHELD = ("io_read_bytes_per_second", "io_write_bytes_per_second")


class FakeScheme:
    """Fits ports.scheme.Scheme: units and a kernel that holds all but the IO."""

    name = SchemeName.SYSTEMD
    reason = "systemd is PID 1"
    held_by_kernel = True
    holds_all_tasks = True

    def __init__(self, world: World) -> None:
        self._world = world

    def sandbox_unit(self, sandbox_id: str) -> str | None:
        return f"sandboxd-{sandbox_id}.slice"

    def execution_unit(self, sandbox_id: str, execution_id: str) -> str | None:
        return f"sandboxd-{sandbox_id}-{execution_id}.scope"

    def execution_cgroup(self, sandbox_id: str, execution_id: str) -> str | None:
        return f"sandboxd.slice/sandboxd-{sandbox_id}.slice/{execution_id}.scope"

    def enforcement(self) -> Mapping[str, Enforcement]:
        held = {name: Enforcement(EnforcedBy.KERNEL, file) for name, file in _FILES.items()}
        unheld = dict.fromkeys(_UNHELD, Enforcement(EnforcedBy.NONE, "no block device"))
        return {**common.enforcement(), **held, **unheld}

    def rlimits(self, limits: Limits) -> Mapping[str, tuple[int, int]]:
        return common.rlimits(limits)

    def environment(self, limits: Limits) -> Mapping[str, str]:
        return {}

    async def create_sandbox(self, sandbox: Sandbox) -> None:
        await self._world.reach("create_sandbox")
        self._world.hold(f"slice {sandbox.id}")

    async def place(self, sandbox: Sandbox, execution: Execution, shim: Shim) -> None:
        self._world.call("place")
        self._world.hold(f"scope {execution.id}")

    async def collect(self, sandbox: Sandbox, execution: Execution) -> None:
        self._world.drop(f"scope {execution.id}")

    async def change_limits(
        self,
        sandbox: Sandbox,
        limits: Limits,
        executions: Collection[tuple[Execution, Limits]],
    ) -> None:
        self._world.call("change_limits")

    async def suspend_sandbox(self, sandbox: Sandbox) -> None:
        self._world.call("suspend_sandbox")

    async def resume_sandbox(self, sandbox: Sandbox) -> None:
        self._world.call("resume_sandbox")

    async def upkeep(self) -> None:
        self._world.call("upkeep")

    def memory_current(self, sandbox: Sandbox) -> int | None:
        return self._world.memory_used

    async def usage(self, sandbox: Sandbox) -> SandboxUsage:
        return self._world.usage

    async def execution_usages(
        self, sandbox: Sandbox, executions: Collection[Execution]
    ) -> Mapping[str, SandboxUsage]:
        return {execution.id: self._world.usage for execution in executions}

    async def kill_sandbox(self, sandbox: Sandbox) -> None:
        await self._world.reach("kill_sandbox")

    async def without_place(self, sandboxes: Collection[Sandbox]) -> Collection[str]:
        return [s.id for s in sandboxes if f"slice {s.id}" not in self._world.held]

    async def sweep(self, sandbox: Sandbox) -> None:
        self._world.call(f"sweep {sandbox.id}")
        self._world.stuck_uids.discard(sandbox.uid)

    async def clear_strays(self) -> Iterable[str]:
        self._world.call("clear_strays")
        return ()

    async def release_sandbox(self, sandbox: Sandbox) -> None:
        self._world.call("release_sandbox")
        self._world.drop(f"slice {sandbox.id}")

    async def adopt_sandbox(self, sandbox: Sandbox, execution_ids: Collection[str]) -> bool:
        scopes = {held for held in self._world.held if held.startswith("scope ")}
        self._world.held -= scopes - {f"scope {known}" for known in execution_ids}
        return f"slice {sandbox.id}" in self._world.held

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> Iterable[str]:
        return ()


class FakeRoots:
    """Fits ports.scheme.Roots."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def build(
        self, sandbox: Sandbox, *, home: str, tmp_directory: str, identity_files: Mapping[str, str]
    ) -> tuple[Bind, ...]:
        self._world.hold(f"root {sandbox.id}")
        self._world.call("build_root")
        return tuple(replace(bind, ownership=Ownership.MAPPED) for bind in sandbox.binds)

    async def remove(self, sandbox: Sandbox) -> None:
        self._world.drop(f"root {sandbox.id}")

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        self._world.call("discard_unknown_roots")
