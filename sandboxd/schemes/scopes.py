# SPDX-License-Identifier: Apache-2.0
"""The scopes of executions: a held shim is put into one, checked, and cleared up after its end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection
from functools import partial

from sandboxd.cgroup import counters, programs, tree
from sandboxd.cgroup.programs import Hook
from sandboxd.core.model import Limits
from sandboxd.engine.ports.launch import Shim
from sandboxd.errors import (
    BusUnavailable,
    LimitNotApplied,
    OperationTimedOut,
    SandboxdError,
    SchemeError,
)
from sandboxd.osutil.pidfd import has_ended
from sandboxd.osutil.processes import GONE
from sandboxd.schemes.sandbox_slice import SandboxSlice, change, expected, quietly, verify
from sandboxd.systemd import properties
from sandboxd.systemd.manager import Manager

_ATTEMPTS = 3
# systemd removes a scope by itself once its cgroup is empty; a busy one may take its time.
_COLLECT_SECONDS = 2.0
_GONE_SECONDS = 10.0
_FILTER_SECONDS = 1.0
_FILTER_PASS_SECONDS = 0.02


class Scopes:
    """Starts, changes and clears scopes."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.io_path: str | None = None
        # What walls lack on this host; until it is known nothing is asked of them.
        self.missing_bpf_programs: Collection[str] | None = None

    async def start(
        self,
        sandbox_slice: SandboxSlice,
        unit: str,
        limits: Limits,
        shim: Shim,
        *,
        description: str,
    ) -> None:
        """Put a held shim into a new scope, its limits in force; on an error no scope is left.

        Raises SchemeError (and its kinds), BusUnavailable, OperationTimedOut.
        """
        try:
            await self._start(sandbox_slice, unit, limits, shim, description)
            # systemd starts a scope around a dead process as well, and never collects it.
            _check_alive(unit, shim)
            if not is_in(shim.pid, unit):
                raise SchemeError(
                    f"cannot place {unit}: systemd reports it started, but the shim is not in it",
                    details={"unit": unit},
                )
            self._verify(sandbox_slice, unit, limits)
            await self._verify_filter(sandbox_slice, unit)
        except BaseException:
            await quietly(partial(self.remove, sandbox_slice, unit), f"undo the start of {unit}")
            raise

    async def change(self, sandbox_slice: SandboxSlice, unit: str, limits: Limits) -> None:
        """Put new limits on a scope and read them back; one that ended meanwhile needs none."""
        tasks = _tasks(limits)
        changed = properties.limit_properties(limits, tasks=tasks, io_path=self.io_path)
        directory = os.path.join(sandbox_slice.directory, unit)
        try:
            await change(self._manager, unit, directory, changed)
            self._verify(sandbox_slice, unit, limits)
        except SandboxdError:
            if tree.exists(directory):
                raise

    def unknown(self, sandbox_slice: SandboxSlice) -> list[str]:
        """Scopes in a sandbox's slice, by their cgroups, that belong to no execution."""
        return [
            u
            for u in tree.children(sandbox_slice.directory, ".scope")
            if u not in sandbox_slice.scopes
        ]

    async def remove(self, sandbox_slice: SandboxSlice, unit: str) -> None:
        """Stop a scope with all its processes; return once the scope is gone."""
        await self._manager.stop_unit(unit)
        directory = os.path.join(sandbox_slice.directory, unit)
        if not await tree.wait_gone(directory, timeout_seconds=_GONE_SECONDS):
            raise OperationTimedOut(
                f"cannot remove {unit}: its cgroup is still there after {_GONE_SECONDS:g} seconds",
                details={"unit": unit},
            )

    async def collect(self, sandbox_slice: SandboxSlice, unit: str) -> None:
        """Return when a scope whose processes ended is gone, by force if it stays."""
        directory = os.path.join(sandbox_slice.directory, unit)
        if not await tree.wait_gone(directory, timeout_seconds=_COLLECT_SECONDS):
            await self.remove(sandbox_slice, unit)

    async def _start(
        self, sandbox_slice: SandboxSlice, unit: str, limits: Limits, shim: Shim, description: str
    ) -> None:
        features = await self._manager.features()
        asked = properties.execution_scope(
            limits, slice_name=sandbox_slice.unit, pid=shim.pid, tasks=_tasks(limits),
            io_path=self.io_path, description=description, features=features,
        )  # fmt: skip
        fds = [shim.pidfd] if features.pidfds else []
        for attempt in range(1, _ATTEMPTS + 1):
            # Without pidfds systemd knows the process by its number, which may be another's then.
            _check_alive(unit, shim)
            try:
                await self._manager.start_transient(unit, asked, fds=fds)
            except (BusUnavailable, OperationTimedOut):
                # The call may have been carried out and only its answer lost.
                if is_in(shim.pid, unit):
                    return
                if attempt == _ATTEMPTS or has_ended(shim.pidfd):
                    raise
                await self.remove(sandbox_slice, unit)
            else:
                return

    def _verify(self, sandbox_slice: SandboxSlice, unit: str, limits: Limits) -> None:
        asked = expected(limits, tasks=_tasks(limits), io_path=self.io_path)
        verify(unit, os.path.join(sandbox_slice.directory, unit), asked)

    async def _verify_filter(self, sandbox_slice: SandboxSlice, unit: str) -> None:
        if self.missing_bpf_programs is None:
            return
        deadline = time.monotonic() + _FILTER_SECONDS
        while left := [
            lack
            for lack in missing_bpf_programs(sandbox_slice, unit)
            if lack not in self.missing_bpf_programs
        ]:
            if time.monotonic() < deadline:
                # A reload puts the programs in anew.
                await asyncio.sleep(_FILTER_PASS_SECONDS)
                continue
            raise LimitNotApplied(
                f"cannot hold the access filter of {unit}: {'; '.join(left)}",
                hint="see the journal of systemd (PID 1) for the reason",
                details={"unit": unit, "lacks": left},
            )


def missing_bpf_programs(sandbox_slice: SandboxSlice, unit: str) -> list[str]:
    """What of a sandbox's wall is not there for one of its scopes, in words.

    systemd attaches a slice's address filter to the scopes in it, its device filter to the slice
    (systemd 257, bpf-firewall.c).
    """
    scope = os.path.join(sandbox_slice.directory, unit)
    hooks = []
    if sandbox_slice.access_filter.denied:
        hooks += [("address filter", scope, hook) for hook in (Hook.EGRESS, Hook.INGRESS)]
    if sandbox_slice.access_filter.no_devices:
        hooks.append(("device filter", sandbox_slice.directory, Hook.DEVICE))
    lacks = []
    for name, directory, hook in hooks:
        found = programs.count(directory, hook)
        if found is None:
            lacks.append(f"{name}: the kernel does not say whether there is one")
        elif found == 0:
            lacks.append(f"{name}: systemd attached none (a kernel without cgroup BPF?)")
    return list(dict.fromkeys(lacks))


def _check_alive(unit: str, shim: Shim) -> None:
    if has_ended(shim.pidfd):
        raise SchemeError(f"cannot place {unit}: its shim ended", details={"unit": unit})


def is_in(pid: int, unit: str) -> bool:
    """Whether a process is in the scope itself."""
    try:
        own = counters.own_cgroup(f"/proc/{pid}/cgroup")
    except GONE:
        return False
    return own is not None and own.endswith(f"/{unit}")


def _tasks(limits: Limits) -> int:
    """The program's processes and the shim."""
    return limits.pids + 1
