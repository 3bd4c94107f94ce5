# SPDX-License-Identifier: Apache-2.0
"""The slices of one daemon: the parent with the aggregate limit, buckets, one for each sandbox.

A slice is started before anything names it: one that systemd implies is active without limits.
Empty slices are not collected, so a bucket's last sandbox takes the bucket with it, under the
bucket's lock, so that a sandbox just being made in it is not hurt.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

from sandboxd.cgroup import limits as cgroup_limits
from sandboxd.cgroup import tree
from sandboxd.core.limits import MAX_CPU_WEIGHT
from sandboxd.core.model import Limits
from sandboxd.core.names import UnitNames
from sandboxd.errors import (
    LimitNotApplied,
    OperationTimedOut,
    SandboxNotFound,
    UnitExists,
    UnitMissing,
)
from sandboxd.schemes.sandbox_slice import SandboxSlice, change, expected, quietly, verify
from sandboxd.systemd import properties, units
from sandboxd.systemd.access_filter import AccessFilter
from sandboxd.systemd.manager import Manager
from sandboxd.systemd.properties import Property

_GONE_SECONDS = 10.0


class Slices:
    """All slices of one instance."""

    def __init__(
        self, manager: Manager, names: UnitNames, instance_id: str, aggregate: Mapping[str, int]
    ) -> None:
        """aggregate: `memory_bytes` and `pids` of all sandboxes together."""
        self._manager = manager
        self._names = names
        self._instance_id = instance_id
        self._aggregate = aggregate
        # An admin's own slices below the parent are none of our business.
        stem = re.escape(names.stem)
        self._form = re.compile(rf"{stem}-(probe|[0-9a-f]{{2}}(-[a-z2-7]{{12}})?)\.slice")
        self._by_sandbox: dict[str, SandboxSlice] = {}
        self._bucket_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._buckets: defaultdict[str, set[str]] = defaultdict(set)
        self.root = ""
        self.io_path: str | None = None

    def directory(self, unit: str) -> str:
        """A slice's cgroup."""
        return os.path.join(self.root, units.slice_path(unit))

    def get(self, sandbox_id: str) -> SandboxSlice:
        """Raises SandboxNotFound when this daemon holds no such slice."""
        sandbox_slice = self._by_sandbox.get(sandbox_id)
        if sandbox_slice is None:
            raise SandboxNotFound(f"cannot find a slice of sandbox {sandbox_id}")
        return sandbox_slice

    # -- the parent

    def all(self) -> list[SandboxSlice]:
        """Of all sandboxes."""
        return list(self._by_sandbox.values())

    async def open_parent(self) -> None:
        """Start it with its limits; where a package has its unit, or an earlier daemon left it, set
        that, which lasts over a reload of systemd. Read back."""
        unit = self._names.parent_slice
        about = units.describe(self._instance_id, "all sandboxes")
        memory, tasks = self._aggregate["memory_bytes"], self._aggregate["pids"]
        try:
            await self._manager.start_transient(unit, properties.parent_slice(memory, tasks, about))
        except UnitExists:
            await self._manager.start_unit(unit)
            limits = properties.aggregate_limits(memory, tasks)
            await change(self._manager, unit, self.directory(unit), limits)
        verify(unit, self.directory(unit), self._aggregate)

    async def close_parent(self) -> None:
        """Stop it, and with it everything that is left below."""
        await self._stop(self._names.parent_slice)

    def _parent_is_right(self) -> bool:
        directory = self.directory(self._names.parent_slice)
        return not cgroup_limits.mismatches(directory, self._aggregate)

    # -- sandboxes

    async def start(self, sandbox_id: str, limits: Limits, access_filter: AccessFilter) -> None:
        """Make a sandbox's slice with its limits in force; on an error nothing is left."""
        bucket = self._names.bucket_slice(sandbox_id)
        sandbox_slice = self._new(sandbox_id, limits, access_filter)
        async with self._bucket_locks[bucket]:
            if not self._parent_is_right():
                # Somebody stopped it: the bucket would bring it back, but without its limit.
                await self.open_parent()
            try:
                await self._start_bucket(bucket)
                self._buckets[bucket].add(sandbox_id)
                sandbox_slice.tasks = sandbox_slice.tasks_wanted(limits)
                about = units.describe(self._instance_id, f"sandbox {sandbox_id}")
                await self._manager.start_transient(
                    sandbox_slice.unit,
                    [
                        *properties.sandbox_slice(
                            limits,
                            tasks=sandbox_slice.tasks,
                            io_path=self.io_path,
                            description=about,
                        ),
                        *access_filter.properties(),
                    ],
                )
                self.verify(sandbox_slice)
                self._by_sandbox[sandbox_id] = sandbox_slice
                await self._weigh(bucket)
            except BaseException:
                self._by_sandbox.pop(sandbox_id, None)
                undo = partial(self._remove, sandbox_id, bucket)
                await quietly(undo, f"undo the start of {sandbox_slice.unit}")
                raise

    async def stop(self, sandbox_id: str) -> None:
        """Remove a sandbox's slice with whatever is in it; returns when it is gone."""
        bucket = self._names.bucket_slice(sandbox_id)
        async with self._bucket_locks[bucket]:
            await self._remove(sandbox_id, bucket)
            self._by_sandbox.pop(sandbox_id, None)
            await quietly(partial(self._weigh, bucket), f"lower the weight of {bucket}")

    async def kill(self, sandbox_id: str) -> None:
        """SIGKILL everything in the slice; one that is not there is fine."""
        with suppress(UnitMissing):
            await self._manager.kill_unit(self._names.sandbox_slice(sandbox_id))

    def verify(self, sandbox_slice: SandboxSlice) -> None:
        """Raise LimitNotApplied unless the cgroup has the limits the place says."""
        asked = expected(sandbox_slice.limits, tasks=sandbox_slice.tasks, io_path=self.io_path)
        verify(sandbox_slice.unit, sandbox_slice.directory, asked)

    async def admit(self, sandbox_slice: SandboxSlice, scope: str) -> None:
        """Make room for one more shim."""
        async with sandbox_slice.lock:
            sandbox_slice.scopes.add(scope)
            await self._set_tasks(sandbox_slice)

    async def dismiss(self, sandbox_slice: SandboxSlice, scope: str) -> None:
        """Take the room for one shim back."""
        async with sandbox_slice.lock:
            sandbox_slice.scopes.discard(scope)
            await self._set_tasks(sandbox_slice)

    async def set_limits(self, sandbox_slice: SandboxSlice, limits: Limits) -> None:
        """Change what the slice holds, and read it back. The caller holds `place.lock`."""
        tasks = sandbox_slice.tasks_wanted(limits)
        changed = properties.limit_properties(limits, tasks=tasks, io_path=self.io_path)
        await change(self._manager, sandbox_slice.unit, sandbox_slice.directory, changed)
        sandbox_slice.limits, sandbox_slice.tasks = limits, tasks
        self.verify(sandbox_slice)

    async def weigh(self, sandbox_slice: SandboxSlice) -> None:
        """Have the bucket follow a sandbox's weight. The caller holds `sandbox_slice.lock`."""
        bucket = self._names.bucket_slice(sandbox_slice.sandbox_id)
        async with self._bucket_locks[bucket]:
            await self._weigh(bucket)

    async def adopt(
        self, sandbox_id: str, limits: Limits, access_filter: AccessFilter, scopes: Collection[str]
    ) -> bool:
        """Take over an earlier daemon's slice with those of its scopes that are among `scopes`;
        False when it is not there."""
        sandbox_slice = self._new(sandbox_id, limits, access_filter)
        bucket = self._names.bucket_slice(sandbox_id)
        async with self._bucket_locks[bucket]:
            status = await self._manager.status(sandbox_slice.unit)
            if not status.is_active or units.is_foreign(status.description, self._instance_id):
                return False
            sandbox_slice.scopes = set(tree.children(sandbox_slice.directory, ".scope")) & set(
                scopes
            )
            sandbox_slice.tasks = sandbox_slice.tasks_wanted(limits)
            try:
                self.verify(sandbox_slice)
            except LimitNotApplied:
                # The earlier daemon ended between a change and its record, or a shim is a
                # stray's and has no task of the slice's any more.
                await self.set_limits(sandbox_slice, limits)
            self._buckets[bucket].add(sandbox_id)
            self._by_sandbox[sandbox_id] = sandbox_slice
        return True

    async def is_missing(self, sandbox_id: str) -> bool:
        """Whether somebody else stopped a sandbox's slice."""
        sandbox_slice = self._by_sandbox.get(sandbox_id)
        if sandbox_slice is None or tree.exists(sandbox_slice.directory):
            return False
        return (await self._manager.status(sandbox_slice.unit)).is_gone

    def unknown(self) -> list[str]:
        """Slices of ours, by their cgroups, that belong to no sandbox; those below first."""
        top = self.directory(self._names.parent_slice)
        found = []
        for bucket in tree.children(top, ".slice"):
            used = self._buckets.get(bucket, set())
            below = tree.children(os.path.join(top, bucket), ".slice")
            found += [unit for unit in below if _sandbox_of(unit) not in used]
            if not used:
                found.append(bucket)
        return [unit for unit in found if self._form.fullmatch(unit)]

    async def discard(self, unit: str) -> list[str]:
        """Stop a slice of ours unless this daemon uses it meanwhile; what was stopped."""
        status = await self._manager.status(unit)
        if status.is_gone or units.is_foreign(status.description, self._instance_id):
            return []
        return await self._discard(unit)

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> list[str]:
        """Stop every slice of this instance that belongs to no sandbox; their names.

        Those that this daemon started or adopted itself are not touched.
        """
        wanted = {self._names.sandbox_slice(known) for known in sandbox_ids}
        wanted |= {self._names.bucket_slice(known) for known in sandbox_ids}
        discarded = []
        # Sandboxes before their buckets.
        found = await self._manager.list_units(self._names.patterns()[:1])
        for status in sorted(found, key=lambda status: -status.name.count("-")):
            is_ours = self._form.fullmatch(status.name) and not units.is_foreign(
                status.description, self._instance_id
            )
            if is_ours and status.name not in wanted and not status.is_gone:
                discarded += await self._discard(status.name)
        # By now all sandboxes of an earlier daemon are adopted.
        for bucket in list(self._buckets):
            async with self._bucket_locks[bucket]:
                await quietly(partial(self._weigh, bucket), f"set the weight of {bucket}")
        return discarded

    async def _discard(self, unit: str) -> list[str]:
        """Stop a slice unless this daemon uses it meanwhile; what was stopped."""
        words = unit.removesuffix(".slice").split("-")
        bucket = f"{words[0]}-{words[1]}.slice"
        async with self._bucket_locks[bucket]:
            used = self._buckets.get(bucket, set())
            if (used and unit == bucket) or _sandbox_of(unit) in used:
                return []
            with suppress(UnitMissing):
                await self._manager.kill_unit(unit)
            await self._stop(unit)
        return [unit]

    def _new(self, sandbox_id: str, limits: Limits, access_filter: AccessFilter) -> SandboxSlice:
        unit = self._names.sandbox_slice(sandbox_id)
        return SandboxSlice(sandbox_id, unit, self.directory(unit), limits, access_filter)

    async def _start_bucket(self, bucket: str) -> None:
        if self._buckets.get(bucket):
            return
        about = units.describe(self._instance_id, "some of the sandboxes")
        with suppress(UnitExists):
            await self._manager.start_transient(bucket, properties.plain_slice(about))

    async def _weigh(self, bucket: str) -> None:
        """Give a bucket the weight of its sandboxes together, and read the weight back: the kernel
        compares siblings alone (Documentation/admin-guide/cgroup-v2.rst), and most sandboxes are in
        other buckets. Raises LimitNotApplied, UnitMissing. The caller holds the bucket's lock."""
        known = [self._by_sandbox.get(one) for one in self._buckets.get(bucket, ())]
        weights = [found.limits.cpu_weight for found in known if found is not None]
        if not weights:
            return
        weight = min(MAX_CPU_WEIGHT, sum(weights))
        wanted, directory = {"cpu_weight": weight}, self.directory(bucket)
        if cgroup_limits.mismatches(directory, wanted):
            await change(self._manager, bucket, directory, [properties.bucket_weight(weight)])
            verify(bucket, directory, wanted)

    async def _remove(self, sandbox_id: str, bucket: str) -> None:
        await self._stop(self._names.sandbox_slice(sandbox_id))
        self._buckets[bucket].discard(sandbox_id)
        if not self._buckets[bucket]:
            del self._buckets[bucket]
            if not tree.children(self.directory(bucket), ".slice"):
                await self._stop(bucket)

    async def _stop(self, unit: str) -> None:
        await self._manager.stop_unit(unit)
        gone = await tree.wait_gone(self.directory(unit), timeout_seconds=_GONE_SECONDS)
        if not gone or not (await self._manager.status(unit)).is_gone:
            raise OperationTimedOut(
                f"cannot remove {unit}: it is still there after {_GONE_SECONDS:g} seconds",
                details={"unit": unit},
            )

    async def _set_tasks(self, sandbox_slice: SandboxSlice) -> None:
        tasks = sandbox_slice.tasks_wanted(sandbox_slice.limits)
        if tasks != sandbox_slice.tasks:
            changed = [Property("TasksMax", "t", tasks)]
            await change(self._manager, sandbox_slice.unit, sandbox_slice.directory, changed)
            sandbox_slice.tasks = tasks
            self.verify(sandbox_slice)


def _sandbox_of(unit: str) -> str:
    """The last word of a sandbox's slice."""
    return unit.removesuffix(".slice").rpartition("-")[2]
