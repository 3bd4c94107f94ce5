# SPDX-License-Identifier: Apache-2.0
"""Supervised sandboxes, and the sandbox and execution of each process.

A process belongs to the sandbox that has the process's uid, and to the execution of the nearest
shim among the ancestors: orphans are reparented to the shim, so the way up always leads there
(PR_SET_CHILD_SUBREAPER(2const), pid_namespaces(7)). For sandboxes without uids of their own,
descent alone decides.
"""

from __future__ import annotations

from contextlib import suppress

from sandboxd.osutil.privileges import Privileges
from sandboxd.osutil.processes import GONE, owner, parent
from sandboxd.supervisor.census import Census
from sandboxd.supervisor.execution import Execution
from sandboxd.supervisor.process import Process, is_group_leader
from sandboxd.supervisor.sandbox import Sandbox

_PENDING_SECONDS = 2.0
_GENERATIONS = 64


class ProcessTable:
    """Sandboxes by id and by uid, processes by number."""

    def __init__(self, privileges: Privileges) -> None:
        self.sandboxes: dict[str, Sandbox] = {}
        self._by_uid: dict[int, Sandbox] = {}
        self._shims: dict[int, tuple[Sandbox, Execution]] = {}
        self._known: dict[int, tuple[Sandbox, Execution | None]] = {}
        self._pending: dict[int, float] = {}
        self._census = Census()
        self._is_first = True
        self._own_uid = privileges.uid

    def add(self, sandbox: Sandbox) -> None:
        """Add a sandbox; the processes may be older than the last census."""
        self.sandboxes[sandbox.state.sandbox] = sandbox
        if sandbox.state.uid is not None:
            self._by_uid[sandbox.state.uid] = sandbox
        if sandbox.executions:
            self._census.start_over()
        self.index(sandbox)

    def index(self, sandbox: Sandbox) -> None:
        """Record the shims of changed executions."""
        for execution in sandbox.executions.values():
            self._shims[execution.entry.shim_pid] = (sandbox, execution)

    def drop(self, execution: Execution, now: float) -> None:
        """Drop an execution that is over; remaining processes belong to no execution."""
        self._shims.pop(execution.entry.shim_pid, None)
        for pid in execution.members:
            self.forget(pid, now)
        execution.close()

    def remove(self, sandbox: Sandbox, now: float) -> None:
        """Remove a sandbox that is no longer wanted."""
        del self.sandboxes[sandbox.state.sandbox]
        if sandbox.state.uid is not None:
            self._by_uid.pop(sandbox.state.uid, None)
        for execution in sandbox.executions.values():
            self.drop(execution, now)
        for pid in sandbox.strays.members:
            self._known.pop(pid, None)
        sandbox.strays.close()

    def forget(self, pid: int, now: float) -> None:
        """Forget an ended process; the pid may be reused already."""
        self._known.pop(pid, None)
        self._pending[pid] = now

    def take_in(self, now: float) -> None:
        """Find new processes and assign each to a sandbox and an execution."""
        newcomers = self._census.newcomers()
        if self._pending:
            newcomers += self._pending
        is_awaited = False
        if newcomers:
            is_awaited = any(
                not execution.members
                for sandbox in self.sandboxes.values()
                for execution in sandbox.executions.values()
            )
        for pid in newcomers:
            if pid not in self._known:
                # A failure to read is a process that ended meanwhile.
                with suppress(*GONE):
                    self._consider(pid, now, is_awaited=is_awaited)
        self._is_first = False
        self._pending = {pid: until for pid, until in self._pending.items() if until > now}

    def _consider(self, pid: int, now: float, *, is_awaited: bool) -> None:
        uid = owner(pid)
        by_uid = None if uid is None else self._by_uid.get(uid)
        if uid == self._own_uid and is_awaited and pid not in self._shims:
            # A shim's child has the daemon's uid until just before the exec.
            self._pending.setdefault(pid, now + _PENDING_SECONDS)
        if by_uid is None and (self._by_uid or uid != self._own_uid):
            return
        if not is_group_leader(pid):
            return
        process = Process(pid)
        process.look()
        sandbox, execution = self._belongs_to(process, by_uid)
        if sandbox is None:
            process.close()
            return
        if not self._is_first:
            process.count_from_birth()
        self._pending.pop(pid, None)
        self._known[pid] = (sandbox, execution)
        sandbox.meet(process, execution)

    def _belongs_to(
        self, process: Process, by_uid: Sandbox | None
    ) -> tuple[Sandbox | None, Execution | None]:
        above = process.parent
        for _ in range(_GENERATIONS):
            found = self._shims.get(above) or self._known.get(above)
            if found is not None and by_uid in (None, found[0]):
                return found
            if above <= 1:
                break
            above = parent(above)
        return by_uid, None
