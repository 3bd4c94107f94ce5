# SPDX-License-Identifier: Apache-2.0
"""The rlimit scheme: hosts without systemd or unified cgroups. Fits ports.scheme.Scheme.

A supervisor (supervisor/) holds the sums: it is told of every sandbox and execution by files and a
doorbell, before the command runs. Plain rlimits stand behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sandboxd.core.model import (
    Enforcement,
    Execution,
    Limits,
    Sandbox,
    SandboxState,
    SandboxUsage,
    SchemeName,
)
from sandboxd.engine.ports.launch import Shim
from sandboxd.errors import HostDiskFull, HostStorageFailed, SandboxdError
from sandboxd.isolation.uids import kill_processes
from sandboxd.launch.supervisor import SupervisorClient
from sandboxd.osutil.privileges import Privileges
from sandboxd.osutil.processes import process_start_time
from sandboxd.protocol.codec import to_object
from sandboxd.protocol.dialogue import Kill, LiveUsage, Sweep
from sandboxd.protocol.supervision import Entry, State
from sandboxd.schemes import common, supervisor_limits
from sandboxd.schemes.supervisor_limits import SupervisorFeatures

_log = logging.getLogger(__name__)
_KILL_PASSES = 100
_PASS_SECONDS = 0.02


class RlimitScheme:
    """No units, no cgroups: a supervisor holds the sums, each process carries its rlimits."""

    name = SchemeName.RLIMIT

    def __init__(
        self,
        reason: str,
        supervisor: SupervisorClient,
        privileges: Privileges,
        *,
        address_space_bytes: int | None,
    ) -> None:
        self.reason = reason
        self._address_space_bytes = address_space_bytes
        self._supervisor = supervisor
        self._states: dict[str, State] = {}
        self._features = SupervisorFeatures(is_supervised=False, has_own_uids=privileges.is_root)

    @property
    def held_by_kernel(self) -> bool:
        """A supervisor holds them."""
        return False

    @property
    def holds_all_tasks(self) -> bool:
        """Each uid's are held, and so their sum if it is bounded before they run; without uids of
        their own nobody's are."""
        return not self._features.has_own_uids

    @property
    def missing(self) -> tuple[str, ...]:
        """What the supervisor lacks on this host, in words."""
        return self._features.missing

    async def open(self) -> None:
        """Start the supervisor, or find out that there can be none."""
        own = self._features.has_own_uids
        try:
            greeting = await self._supervisor.open()
        except SandboxdError as exc:
            _log.error("Cannot supervise: %s", exc.message)
            missing = (f"supervisor: nothing holds a sum: {exc.message}",)
            self._features = replace(self._features, missing=missing)
            return
        self._features = SupervisorFeatures.of_greeting(greeting, has_own_uids=own)

    def close(self) -> None:
        """The supervisor goes on."""
        self._supervisor.close()

    def sandbox_unit(self, sandbox_id: str) -> str | None:
        """There are no units."""
        return None

    def execution_unit(self, sandbox_id: str, execution_id: str) -> str | None:
        """There are no units."""
        return None

    def execution_cgroup(self, sandbox_id: str, execution_id: str) -> str | None:
        """There are no cgroups."""
        return None

    def enforcement(self) -> Mapping[str, Enforcement]:
        """Who holds each limit. A bound on each process alone does not hold the sum: `none`."""
        return supervisor_limits.enforcement(self._features)

    def rlimits(self, limits: Limits) -> Mapping[str, tuple[int, int]]:
        """The common ones, and what stands behind the supervisor."""
        return supervisor_limits.rlimits(
            self._features, limits, address_space_bytes=self._address_space_bytes
        )

    def environment(self, limits: Limits) -> Mapping[str, str]:
        """Hints for runtimes that size themselves by the host."""
        return common.hints(limits)

    async def create_sandbox(self, sandbox: Sandbox) -> None:
        """The uid is the place; the supervisor learns of it."""
        # The probe at start has none.
        uid = (sandbox.uid or None) if self._features.has_own_uids else None
        caps = supervisor_limits.caps(self._features, sandbox.limits)
        await self._put(State(sandbox.id, uid, caps))

    async def place(self, sandbox: Sandbox, execution: Execution, shim: Shim) -> None:
        """Have it supervised before its command runs."""
        entry = Entry(
            id=execution.id,
            evidence_directory=shim.evidence_directory,
            shim_pid=shim.pid,
            shim_start_time=process_start_time(shim.pid),
            limits=supervisor_limits.own_caps(self._features, execution, execution.limits),
        )
        state = self._states[sandbox.id]
        await self._put(replace(state, executions=(*state.executions, entry)))

    def probe(self, sandbox: Sandbox, execution: Execution) -> None:
        """Do nothing: the supervisor has tried the host by itself."""

    async def collect(self, sandbox: Sandbox, execution: Execution) -> None:
        """Forget it; after the last one nobody of the uid may be left."""
        state = self._states.get(sandbox.id)
        if state is None:
            return
        left = tuple(entry for entry in state.executions if entry.id != execution.id)
        state = replace(state, executions=left)
        try:
            await self._put(state)
        except (HostDiskFull, HostStorageFailed) as exc:
            # The next change of this sandbox says it; until then its shim is known to be gone.
            self._states[sandbox.id] = state
            _log.warning("Cannot tell the supervisor of an end: %s", exc.message)
            return
        except SandboxdError as exc:
            # The file says it, so the next supervisor knows.
            _log.warning("Cannot tell the supervisor of an end: %s", exc.message)
            return
        if not left:
            await self.sweep(sandbox)

    async def change_limits(
        self,
        sandbox: Sandbox,
        limits: Limits,
        executions: Collection[tuple[Execution, Limits]],
    ) -> None:
        """The supervisor holds the new ones from its next look on; see `enforcement` for pids."""
        state = self._states[sandbox.id]
        own = {
            e.id: supervisor_limits.own_caps(self._features, e, changed)
            for e, changed in executions
        }
        entries = tuple(replace(e, limits=own.get(e.id, e.limits)) for e in state.executions)
        caps = supervisor_limits.caps(self._features, limits)
        try:
            await self._put(replace(state, limits=caps, executions=entries))
        except BaseException:
            before = self._states[sandbox.id]
            self._states[sandbox.id] = replace(before, limits=state.limits)
            self._supervisor.write(self._states[sandbox.id])
            raise

    async def suspend_sandbox(self, sandbox: Sandbox) -> None:
        """From now on the supervisor lets nobody go on. On an error it does."""
        before = self._states[sandbox.id]
        try:
            await self._put(replace(before, suspended=True))
        except BaseException:
            # It may have been written, and be followed later.
            self._states[sandbox.id] = before
            self._supervisor.write(before)
            raise

    async def resume_sandbox(self, sandbox: Sandbox) -> None:
        """From now on it may again."""
        await self._put(replace(self._states[sandbox.id], suspended=False))

    def memory_current(self, sandbox: Sandbox) -> int | None:
        """As the supervisor would judge it."""
        return self._supervisor.memory_now(sandbox.id) if self._features.is_supervised else None

    async def usage(self, sandbox: Sandbox) -> SandboxUsage:
        """As the supervisor counts it. What anonymous pages, files and swap are of it, it does not
        know."""
        found = await self._supervisor.usage(sandbox.id) if self._features.is_supervised else None
        return SandboxUsage(of_running_only=True) if found is None else _usage(found)

    async def execution_usages(
        self, sandbox: Sandbox, executions: Collection[Execution]
    ) -> Mapping[str, SandboxUsage]:
        """As the supervisor counts them, by one look at all."""
        if not (executions and self._features.is_supervised):
            return {}
        found = await self._supervisor.execution_usages(sandbox.id)
        wanted = {execution.id for execution in executions}
        return {name: _usage(used) for name, used in found.items() if name in wanted}

    async def upkeep(self) -> None:
        """See that the supervisor lives, in case its keeper died as well."""
        if self._features.is_supervised and not await self._supervisor.greets():
            await self._supervisor.start()

    async def kill_sandbox(self, sandbox: Sandbox) -> None:
        """SIGKILL every process of the sandbox's uid until none is left, within a bound."""
        await self._supervisor.tell(Kill(sandbox.id))
        if not self._features.has_own_uids:
            return
        for _ in range(_KILL_PASSES):
            if await asyncio.to_thread(kill_processes, sandbox.uid) == 0:
                return
            await asyncio.sleep(_PASS_SECONDS)

    async def without_place(self, sandboxes: Collection[Sandbox]) -> Collection[str]:
        """A uid does not go away."""
        return ()

    async def sweep(self, sandbox: Sandbox) -> None:
        """The supervisor refuses when an execution was placed meanwhile."""
        if self._features.is_supervised:
            await self._supervisor.tell(Sweep(sandbox.id))

    async def clear_strays(self) -> Iterable[str]:
        """There are no units."""
        return ()

    async def release_sandbox(self, sandbox: Sandbox) -> None:
        """The supervisor forgets it."""
        self._states.pop(sandbox.id, None)
        await self._supervisor.drop(sandbox.id)

    async def adopt_sandbox(self, sandbox: Sandbox, execution_ids: Collection[str]) -> bool:
        """A uid is still there, unless the record is another scheme's."""
        if sandbox.scheme is not self.name:
            return False
        try:
            state = self._supervisor.directory.read(sandbox.id)
        except ValueError as exc:
            _log.warning("%s", exc)
            state = None
        if state is None:
            await self.create_sandbox(sandbox)
            return True
        suspended = sandbox.state is SandboxState.SUSPENDED
        known = tuple(entry for entry in state.executions if entry.id in execution_ids)
        await self._put(replace(state, suspended=suspended, executions=known))
        return True

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> Iterable[str]:
        """There are no units; what the supervisor still knows of others goes."""
        for name in self._supervisor.directory.times():
            if name not in sandbox_ids:
                await self._supervisor.drop(name)
        return ()

    async def _put(self, state: State) -> None:
        """Raises what `host_lacks` makes, and then nothing is changed; SupervisorUnreachable and
        NotSupervised: then the state is written, and the supervisor tries again by itself."""
        if self._features.is_supervised:
            self._supervisor.write(state)
        self._states[state.sandbox] = state
        if self._features.is_supervised:
            await self._supervisor.load(state.sandbox)


def _usage(found: LiveUsage) -> SandboxUsage:
    return SandboxUsage(**to_object(found))
