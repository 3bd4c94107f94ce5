# SPDX-License-Identifier: Apache-2.0
"""The systemd scheme: a slice for each sandbox, a scope for each execution, limits by the kernel.

systemd is the only writer of these cgroups; what it did is read back from their files, since it
reports a limit that it could not apply only in its journal.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from sandboxd.cgroup import counters, host, tree
from sandboxd.cgroup.limits import parse_io_max
from sandboxd.cgroup.usage import usage_of
from sandboxd.core.limits import BY_NAME, SCOPE_LIMITS
from sandboxd.core.model import (
    EnforcedBy,
    Enforcement,
    Execution,
    Isolation,
    Limits,
    Network,
    Sandbox,
    SandboxUsage,
    SchemeName,
)
from sandboxd.core.names import UnitNames
from sandboxd.engine.ports.launch import Shim
from sandboxd.errors import PropertyRejected, SchemeError, UnitExists
from sandboxd.schemes import common
from sandboxd.schemes.sandbox_slice import SandboxSlice, is_io, quietly
from sandboxd.schemes.scopes import Scopes, missing_bpf_programs
from sandboxd.schemes.slices import Slices
from sandboxd.schemes.strays import Strays
from sandboxd.systemd import properties, units
from sandboxd.systemd.access_filter import NO_FILTER, AccessFilter, Address
from sandboxd.systemd.manager import Manager

_PROBE_BYTES_PER_SECOND = 1 << 40

_log = logging.getLogger(__name__)


class SystemdScheme:
    """Sandboxes as slices. `open` before anything else; the manager stays the caller's."""

    def __init__(
        self,
        manager: Manager,
        names: UnitNames,
        *,
        instance_id: str,
        aggregate_bytes: int,
        aggregate_tasks: int,
        io_path: str,
        io_detail: str | None = None,
        denied_addresses: Sequence[Address] = (),
        root: str = counters.ROOT,
    ) -> None:
        """io_path: a path on the file system, or the device, whose disk gets the IO limits.
        io_detail: how that was found, for people. denied_addresses: what no sandbox may reach,
        beside where clouds tell keys."""
        self._manager = manager
        self._names = names
        self._instance_id = instance_id
        self._io_path = io_path
        self._io_detail = io_detail or io_path
        self._io_missing: str | None = "not probed yet"
        self._denied_addresses = denied_addresses
        self._filter_refused: str | None = None
        self._root = root
        aggregate = {"memory_bytes": aggregate_bytes, "pids": aggregate_tasks}
        self._slices = Slices(manager, names, instance_id, aggregate)
        self._scopes = Scopes(manager)
        self._strays = Strays(self._slices, self._scopes)
        self._reason = "not opened yet"

    @property
    def name(self) -> SchemeName:
        return SchemeName.SYSTEMD

    @property
    def held_by_kernel(self) -> bool:
        """It does."""
        return True

    @property
    def holds_all_tasks(self) -> bool:
        """The parent slice's TasksMax does."""
        return True

    @property
    def reason(self) -> str:
        return self._reason

    # -- opening

    async def open(self) -> None:
        """Check the host, start the parent slice with the aggregate limits, probe the IO limits.

        Raises SchemeError with what is missing, BusUnavailable, OperationTimedOut.
        """
        kind = host.hierarchy(self._root)
        if kind is not host.Hierarchy.UNIFIED:
            raise SchemeError(
                f"cannot limit by systemd: this host's cgroup hierarchy is {kind}, not unified",
                hint="boot without systemd.unified_cgroup_hierarchy=0",
            )
        control_group = await self._manager.control_group()
        self._slices.root = os.path.join(self._root, control_group.strip("/")).rstrip("/")
        missing = host.missing_controllers(self._slices.root)
        if set(missing) - {"io"}:
            raise SchemeError(
                f"cannot limit by systemd: this host lacks the cgroup controllers "
                f"{', '.join(missing)}",
                hint="see cgroup_disable= on the kernel's command line",
            )
        await self._slices.open_parent()
        await self.probe_io()
        await self._probe_filter_properties()
        self._reason = f"systemd {await self._manager.version()} with the unified cgroup hierarchy"

    async def close(self, *, remove_parent: bool) -> None:
        """remove_parent: stop the parent slice with everything in it, as a private daemon does."""
        if remove_parent:
            await self._slices.close_parent()

    async def probe_io(self) -> None:
        """Find out by a throw-away slice whether IO limits reach the disk under `io_path`."""
        unit = f"{self._names.stem}-probe.slice"
        bandwidth = [[self._io_path, _PROBE_BYTES_PER_SECOND]]
        asked = [
            properties.Property("IOReadBandwidthMax", "a(st)", bandwidth),
            properties.Property("IOWriteBandwidthMax", "a(st)", bandwidth),
        ]
        try:
            await self._start_probe(unit, asked)
            text = counters.read_text(self._slices.directory(unit), "io.max")
            missing = self._io_missing_by(text)
        except PropertyRejected as exc:
            missing = exc.message
        finally:
            await self._manager.stop_unit(unit)
        self._io_missing = missing
        if missing is not None:
            _log.warning("Cannot limit IO: %s", missing)
        self._slices.io_path = self._scopes.io_path = None if missing else self._io_path

    async def _probe_filter_properties(self) -> None:
        """Find out by a throw-away slice whether this manager takes a wall at all."""
        unit = f"{self._names.stem}-probe.slice"
        access_filter = AccessFilter.of_sandbox(Isolation.STRICT, Network.NONE, ())
        try:
            await self._start_probe(unit, access_filter.properties())
            self._filter_refused = None
        except SchemeError as exc:
            self._filter_refused = f"address filter and device filter: {exc.message}"
        finally:
            await self._manager.stop_unit(unit)

    async def _start_probe(self, unit: str, asked: list[properties.Property]) -> None:
        try:
            await self._manager.start_transient(unit, asked)
        except UnitExists:
            # Left by a daemon that was killed at this very point.
            await self._manager.stop_unit(unit)
            await self._manager.start_transient(unit, asked)

    def _io_missing_by(self, text: str | None) -> str | None:
        if text is None:
            return "this host has no io controller"
        for limits in parse_io_max(text).values():
            if limits.get("rbps") == limits.get("wbps") == _PROBE_BYTES_PER_SECOND:
                return None
        return f"no block device of its own is under {self._io_path} ({self._io_detail})"

    # -- what holds what

    def sandbox_unit(self, sandbox_id: str) -> str:
        return self._names.sandbox_slice(sandbox_id)

    def execution_unit(self, sandbox_id: str, execution_id: str) -> str:
        return self._names.execution_scope(sandbox_id, execution_id)

    def execution_cgroup(self, sandbox_id: str, execution_id: str) -> str:
        above = units.slice_path(self.sandbox_unit(sandbox_id))
        return f"{above}/{self.execution_unit(sandbox_id, execution_id)}"

    def enforcement(self) -> Mapping[str, Enforcement]:
        held = dict(common.enforcement())
        for name in SCOPE_LIMITS:
            detail = f"{BY_NAME[name].file} of the sandbox's slice and of each execution's scope"
            held[name] = Enforcement(EnforcedBy.KERNEL, detail)
            if is_io(name):
                held[name] = self._io_enforcement(detail)
        return held

    def _io_enforcement(self, detail: str) -> Enforcement:
        if self._io_missing is not None:
            return Enforcement(EnforcedBy.NONE, self._io_missing)
        return Enforcement(EnforcedBy.KERNEL, f"{detail}; disk: {self._io_detail}")

    def rlimits(self, limits: Limits) -> Mapping[str, tuple[int, int]]:
        return common.rlimits(limits)

    # -- sandboxes and executions

    async def create_sandbox(self, sandbox: Sandbox) -> None:
        await self._slices.start(sandbox.id, sandbox.limits, self._access_filter(sandbox))

    async def place(self, sandbox: Sandbox, execution: Execution, shim: Shim) -> None:
        sandbox_slice = self._slices.get(sandbox.id)
        unit = self.execution_unit(sandbox.id, execution.id)
        about = units.describe(self._instance_id, f"execution {execution.id} of {sandbox.id}")
        async with AsyncExitStack() as undo:
            undo.push_async_callback(
                quietly,
                partial(self._slices.dismiss, sandbox_slice, unit),
                f"lower the tasks of {sandbox_slice.unit}",
            )
            await self._slices.admit(sandbox_slice, unit)
            await self._scopes.start(sandbox_slice, unit, execution.limits, shim, description=about)
            undo.pop_all()

    def probe(self, sandbox: Sandbox, execution: Execution) -> None:
        """Learn from a placed execution what access filters lack; the rest is required later."""
        unit = self.execution_unit(sandbox.id, execution.id)
        self._scopes.missing_bpf_programs = missing_bpf_programs(self._slices.get(sandbox.id), unit)

    @property
    def missing(self) -> tuple[str, ...]:
        """What the second wall lacks on this host, in words."""
        if self._filter_refused is not None:
            return (self._filter_refused,)
        return tuple(self._scopes.missing_bpf_programs or ())

    def _access_filter(self, sandbox: Sandbox) -> AccessFilter:
        if self._filter_refused is not None:
            return NO_FILTER
        return AccessFilter.of_sandbox(sandbox.isolation, sandbox.network, self._denied_addresses)

    async def collect(self, sandbox: Sandbox, execution: Execution) -> None:
        sandbox_slice = self._slices.get(sandbox.id)
        unit = self.execution_unit(sandbox.id, execution.id)
        if unit not in sandbox_slice.scopes:
            # It was never placed, or the error that ended its start has cleared up after it.
            return
        # Its shim is gone: the next one takes its room, with no change of the slice between them.
        sandbox_slice.scopes.discard(unit)
        await self._scopes.collect(sandbox_slice, unit)
        await self._slices.dismiss(sandbox_slice, unit)

    async def change_limits(
        self,
        sandbox: Sandbox,
        limits: Limits,
        executions: Collection[tuple[Execution, Limits]],
    ) -> None:
        """Set limits live; on an error restore the old limits.

        At no moment has a scope more than its slice: the slice first gets the greater of old and
        new, then come the scopes, then the slice gets the new ones.
        """
        sandbox_slice = self._slices.get(sandbox.id)
        async with sandbox_slice.lock, AsyncExitStack() as undo:
            old = sandbox_slice.limits
            both = _greater(old, limits)
            if both != old:
                self._will_restore_slice(undo, sandbox_slice, old)
                await self._slices.set_limits(sandbox_slice, both)
            for execution, wanted in executions:
                unit = self.execution_unit(sandbox.id, execution.id)
                if unit in sandbox_slice.scopes and _held(wanted) != _held(execution.limits):
                    back = partial(self._scopes.change, sandbox_slice, unit, execution.limits)
                    undo.push_async_callback(quietly, back, f"restore the limits of {unit}")
                    await self._scopes.change(sandbox_slice, unit, wanted)
            if both != limits:
                self._will_restore_slice(undo, sandbox_slice, old)
                await self._slices.set_limits(sandbox_slice, limits)
            await self._slices.weigh(sandbox_slice)
            undo.pop_all()

    def _will_restore_slice(
        self, undo: AsyncExitStack, sandbox_slice: SandboxSlice, old: Limits
    ) -> None:
        back = partial(self._slices.set_limits, sandbox_slice, old)
        undo.push_async_callback(quietly, back, f"restore the limits of {sandbox_slice.unit}")

    def environment(self, limits: Limits) -> Mapping[str, str]:
        """Hints, since nobody can read the limits of a cgroup inside: a root of its own has no
        /sys, and at basic the cgroups are hidden."""
        return common.hints(limits)

    async def suspend_sandbox(self, sandbox: Sandbox) -> None:
        """Nothing: only shims thaw their cgroups."""

    async def resume_sandbox(self, sandbox: Sandbox) -> None:
        """Nothing."""

    async def upkeep(self) -> None:
        """Nothing: the kernel holds the limits."""

    def memory_current(self, sandbox: Sandbox) -> int | None:
        directory = self._slices.directory(self.sandbox_unit(sandbox.id))
        return counters.read_number(directory, "memory.current")

    async def usage(self, sandbox: Sandbox) -> SandboxUsage:
        """Return usage without shims, each of which is a task of the slice."""
        sandbox_slice = self._slices.get(sandbox.id)
        return usage_of(sandbox_slice.directory, shims=len(sandbox_slice.scopes))

    async def execution_usages(
        self, sandbox: Sandbox, executions: Collection[Execution]
    ) -> Mapping[str, SandboxUsage]:
        """Return usage by execution id; a scope's memory includes the shim, about 1 MiB."""
        sandbox_slice = self._slices.get(sandbox.id)
        found = {}
        for execution in executions:
            unit = self.execution_unit(sandbox.id, execution.id)
            directory = os.path.join(sandbox_slice.directory, unit)
            if unit in sandbox_slice.scopes and tree.exists(directory):
                found[execution.id] = usage_of(directory, shims=1)
        return found

    async def kill_sandbox(self, sandbox: Sandbox) -> None:
        await self._slices.kill(sandbox.id)

    async def without_place(self, sandboxes: Collection[Sandbox]) -> Collection[str]:
        return [s.id for s in sandboxes if await self._slices.is_missing(s.id)]

    async def sweep(self, sandbox: Sandbox) -> None:
        """Whatever has the uid runs in a scope, and one that nobody knows is a stray."""

    async def clear_strays(self) -> Iterable[str]:
        return await self._strays.clear()

    async def release_sandbox(self, sandbox: Sandbox) -> None:
        await self._slices.stop(sandbox.id)

    async def adopt_sandbox(self, sandbox: Sandbox, execution_ids: Collection[str]) -> bool:
        """Take over the slice; scopes of unknown executions become strays."""
        scopes = {self.execution_unit(sandbox.id, known) for known in execution_ids}
        return await self._slices.adopt(
            sandbox.id, sandbox.limits, self._access_filter(sandbox), scopes
        )

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> Iterable[str]:
        return await self._slices.discard_unknown(sandbox_ids)


def _held(limits: Limits) -> tuple[float, ...]:
    """What a scope holds of them."""
    return tuple(getattr(limits, name) for name in SCOPE_LIMITS)


def _greater(one: Limits, other: Limits) -> Limits:
    """`other`, with the greater of each value that a slice holds."""
    values = {name: max(getattr(one, name), getattr(other, name)) for name in SCOPE_LIMITS}
    return replace(other, **values)
