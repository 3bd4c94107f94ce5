# SPDX-License-Identifier: Apache-2.0
"""The rlimit scheme: hosts without systemd or unified cgroups. Fits ports.Scheme.

What plain rlimits can hold is held; what they cannot hold for the sum of all processes is said to
be held by nobody.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Collection, Iterable, Mapping

from sandboxd.isolation.uids import kill_processes
from sandboxd.model import EnforcedBy, Enforcement, Execution, Limits, Sandbox, SchemeName
from sandboxd.ports import Shim
from sandboxd.schemes import common

_KILL_PASSES = 100
_PASS_SECONDS = 0.02


class RlimitScheme:
    """No units, no cgroups: each process carries its limits."""

    name = SchemeName.RLIMIT

    def __init__(self, reason: str, *, address_space_bytes: int) -> None:
        self.reason = reason
        self._address_space_bytes = address_space_bytes
        self._has_own_uids = os.getuid() == 0

    def sandbox_unit(self, sandbox_id: str) -> str | None:
        """There are no units."""
        return None

    def execution_unit(self, sandbox_id: str, execution_id: str) -> str | None:
        """There are no units."""
        return None

    def enforcement(self, limits: Limits) -> Mapping[str, Enforcement]:
        """Who holds each limit. A bound on each process alone does not hold the sum: `none`."""
        nobody = EnforcedBy.NONE
        held = dict(common.enforcement())
        held["memory_bytes"] = Enforcement(
            nobody, "nothing holds the sum; RLIMIT_DATA bounds each process"
        )
        held["cpus"] = Enforcement(nobody, "this host's scheme cannot slow a sandbox down")
        if self._has_own_uids:
            held["pids"] = Enforcement(
                EnforcedBy.KERNEL, "RLIMIT_NPROC of the sandbox's own uid, for new processes"
            )
        else:
            held["pids"] = Enforcement(
                nobody, "RLIMIT_NPROC would count all processes of the daemon's own uid"
            )
        for name in ("io_read_bytes_per_second", "io_write_bytes_per_second"):
            held[name] = Enforcement(nobody, "this host's scheme cannot slow input and output down")
        held["cpu_seconds"] = Enforcement(
            nobody, "nothing holds the sum; RLIMIT_CPU bounds each process"
        )
        return held

    def rlimits(self, limits: Limits) -> Mapping[str, tuple[int, int]]:
        """The common ones, and what stands in for the cgroup's on each process."""
        chosen = dict(common.rlimits(limits))
        chosen["RLIMIT_DATA"] = (limits.memory_bytes, limits.memory_bytes)
        chosen["RLIMIT_AS"] = (self._address_space_bytes, self._address_space_bytes)
        if self._has_own_uids:
            chosen["RLIMIT_NPROC"] = (limits.pids, limits.pids)
        else:
            del chosen["RLIMIT_NPROC"]
        if limits.cpu_seconds is not None:
            soft = math.ceil(limits.cpu_seconds)
            chosen["RLIMIT_CPU"] = (soft, soft + 1)
        return chosen

    async def create_sandbox(self, sandbox: Sandbox) -> None:
        """Nothing to make: the uid is the place."""

    async def place(self, sandbox: Sandbox, execution: Execution, shim: Shim) -> None:
        """Nothing to do: the child sets its own rlimits."""

    async def collect(self, sandbox: Sandbox, execution: Execution) -> None:
        """Nothing to remove: the shim killed what was left."""

    async def change_limits(
        self,
        sandbox: Sandbox,
        limits: Limits,
        executions: Collection[tuple[Execution, Limits]],
    ) -> None:
        """New processes get the new limits; see `enforcement`."""

    def memory_current(self, sandbox: Sandbox) -> int | None:
        """Nobody sums it."""
        return None

    async def kill_sandbox(self, sandbox: Sandbox) -> None:
        """SIGKILL every process of the sandbox's uid until none is left, within a bound."""
        if not self._has_own_uids:
            return
        for _ in range(_KILL_PASSES):
            if await asyncio.to_thread(kill_processes, sandbox.uid) == 0:
                return
            await asyncio.sleep(_PASS_SECONDS)

    async def release_sandbox(self, sandbox: Sandbox) -> None:
        """Nothing to remove."""

    async def adopt_sandbox(self, sandbox: Sandbox) -> bool:
        """A uid is still there, unless the record is another scheme's."""
        return sandbox.scheme is self.name

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> Iterable[str]:
        """There are no units."""
        return ()
