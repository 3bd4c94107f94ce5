# SPDX-License-Identifier: Apache-2.0
"""Live sandboxes with executions, names and promised memory. In memory; no method waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sandboxd.core.model import Caller, Command, ErrorCode, Execution, Sandbox, SandboxState
from sandboxd.core.policy import Budget, CallerQuota, TaskBudget, TerminalBudget
from sandboxd.engine.batch import Reading
from sandboxd.engine.ports.host import Clock
from sandboxd.engine.ports.launch import Shim
from sandboxd.engine.retention import argument_bytes, sandbox_bytes
from sandboxd.errors import Draining, ExecutionNotFound, NameInUse, SandboxNotFound, SandboxReleased


@dataclass(eq=False, slots=True)
class LiveExecution:
    """An execution and the engine's objects for the execution.

    shim: None before the launch and after the end. deadline_monotonic: time limit of the shim.
    is_overdue: the shim missed the deadline, so the daemon ended the execution. kill_code: the
    reason of the order to kill. remains: a shim that still lived after its record was written.
    """

    execution: Execution
    shim: Shim | None = None
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    collected: asyncio.Event = field(default_factory=asyncio.Event)
    deadline_monotonic: float | None = None
    is_overdue: bool = False
    kill_code: ErrorCode | None = None
    remains: Shim | None = None
    watcher: asyncio.Task[None] | None = None
    followers: set[asyncio.Event] = field(default_factory=set)
    input_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Files of a run to read before the release; None afterwards.
    reading: Reading | None = None
    _weighed: tuple[Command, int] | None = None

    @property
    def argument_bytes(self) -> int:
        """Memory of the record's arguments and environment in bytes, cached per command."""
        command = self.execution.command
        if self._weighed is None or self._weighed[0] is not command:
            self._weighed = command, argument_bytes(command)
        return self._weighed[1]

    def conclude(self) -> None:
        """Wake all waiters and followers: the outcome is final and the record saved."""
        self.finished.set()
        for follower in self.followers:
            follower.set()


@dataclass(eq=False, slots=True)
class DiskState:
    """The last count of a sandbox's disk use, where no kernel quota exists.

    most_bytes: upper bound; equals the use after a complete count, else grows with the whole file
    system; None if unknown. least_bytes: lower bound. obstacle: why the count is incomplete.
    charged_bytes: written by the API since the count. tolerated_bytes: excess that ends no
    execution. growth_bytes: growth of the whole file system at the time of the count.
    """

    most_bytes: int | None = None
    least_bytes: int = 0
    obstacle: str | None = None
    charged_bytes: int = 0
    tolerated_bytes: int = 0
    growth_bytes: int = 0
    counted_monotonic: float | None = None
    took_seconds: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def used_bytes(self) -> int | None:
        """The exact use; None if unknown."""
        return self.most_bytes if self.obstacle is None else None


@dataclass(eq=False, slots=True)
class LiveSandbox:
    """A sandbox and the engine's objects for the sandbox.

    starting, starting_bytes: executions between request and exec, and the memory of the arguments;
    a release waits for zero. uses: file operations of the API, ended by a release. retry_monotonic:
    earliest time of the next automatic try of a failed release.
    """

    sandbox: Sandbox
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    executions: dict[str, LiveExecution] = field(default_factory=dict)
    starting: int = 0
    uses: set[asyncio.Timeout] = field(default_factory=set)
    disk: DiskState = field(default_factory=DiskState)
    settled: asyncio.Condition = field(default_factory=asyncio.Condition)
    suspended_monotonic: float | None = None
    release: asyncio.Task[None] | None = None
    release_failures: int = 0
    retry_monotonic: float = 0.0
    has_pruned: bool = False
    starting_bytes: int = 0
    _weighed: tuple[Mapping[str, str], Mapping[str, str], int] | None = None

    @property
    def record_bytes(self) -> int:
        """Memory of the records that count for the owner: the sandbox and running executions."""
        env, metadata = self.sandbox.env, self.sandbox.metadata
        weighed = self._weighed
        if weighed is None or weighed[0] is not env or weighed[1] is not metadata:
            weighed = self._weighed = env, metadata, sandbox_bytes(self.sandbox)
        running = sum(one.argument_bytes for one in self.running())
        return weighed[2] + running + self.starting_bytes

    @property
    def is_over(self) -> bool:
        """Whether the sandbox is released, so that only records are left."""
        return self.sandbox.state is SandboxState.RELEASED

    def touch(self, clock: Clock) -> None:
        """Restart the idle time."""
        self.sandbox.used_monotonic = clock.monotonic()
        self.sandbox.last_used_at = clock.now()

    def running(self) -> list[LiveExecution]:
        """Return the executions whose command may run."""
        return [live for live in self.executions.values() if live.shim is not None]

    def made_by(self, request_id: str) -> LiveExecution | None:
        """Return the execution that an earlier sending of the same request started."""
        for running in self.executions.values():
            if running.execution.request_id == request_id:
                return running
        return None

    def execution(self, execution_id: str) -> LiveExecution:
        """Return an execution. Raises ExecutionNotFound."""
        live = self.executions.get(execution_id)
        if live is None:
            raise ExecutionNotFound(
                f"cannot find execution {execution_id} of sandbox {self.sandbox.id}",
                hint="it may be older than the retention time",
            )
        return live


_DEFAULT_TERMINALS = TerminalBudget()


@dataclass(frozen=True, eq=False, slots=True)
class _Reservation:
    """Resources of a sandbox under creation."""

    owner_uid: int
    name: str | None
    memory_bytes: int
    record_bytes: int


class Registry:
    """All sandboxes of this daemon, including released sandboxes with kept records."""

    def __init__(
        self,
        budget: Budget,
        tasks: TaskBudget,
        quota: CallerQuota | None = None,
        terminals: TerminalBudget = _DEFAULT_TERMINALS,
    ) -> None:
        self.budget = budget
        self.tasks = tasks
        self.terminals = terminals
        self.quota = quota or CallerQuota()
        self.is_draining = False
        self._sandboxes: dict[str, LiveSandbox] = {}
        self._reservations: list[_Reservation] = []
        # Replaced at each addition, which sets the old one.
        self._added = asyncio.Event()

    def __iter__(self) -> Iterator[LiveSandbox]:
        return iter(list(self._sandboxes.values()))

    def executions(self) -> Iterator[tuple[LiveSandbox, LiveExecution]]:
        """Iterate over all executions with a kept record."""
        for live in self:
            for running in list(live.executions.values()):
                yield live, running

    def check_takes_work(self) -> None:
        """Raise Draining while an admin drains the host."""
        if self.is_draining:
            raise Draining(
                "cannot take new work: this host is being drained",
                hint="use another host, or ask an admin for `sandboxctl undrain`",
                details={"draining": True},
            )

    @property
    def executions_running(self) -> int:
        """Number of running and starting executions."""
        return _executing(self._sandboxes.values())

    def add(self, live: LiveSandbox) -> None:
        """Make a sandbox visible to `find`, and wake waiters for a sandbox."""
        self._sandboxes[live.sandbox.id] = live
        self._added.set()
        self._added = asyncio.Event()

    async def some_live(self, timeout_seconds: float) -> None:
        """Return once a sandbox lives, or after the timeout."""
        # The newest are last and the likeliest to live.
        if any(not live.is_over for live in reversed(self._sandboxes.values())):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._added.wait()

    def forget(self, live: LiveSandbox) -> None:
        """Hide a sandbox from `find`."""
        self._sandboxes.pop(live.sandbox.id, None)

    def find(self, caller: Caller, reference: str) -> LiveSandbox:
        """Return a sandbox by id, or a live one by the caller's name. Raises SandboxNotFound."""
        live = self._sandboxes.get(reference)
        if live is not None and caller.may_see(live.sandbox.owner_uid):
            return live
        for live in self._sandboxes.values():
            same = live.sandbox.name == reference and live.sandbox.owner_uid == caller.uid
            if same and not live.is_over:
                return live
        raise SandboxNotFound(f"cannot find sandbox {reference!r}")

    def find_usable(self, caller: Caller, reference: str) -> LiveSandbox:
        """Return a sandbox for a change. Raises SandboxNotFound, SandboxReleased."""
        live = self.find(caller, reference)
        if live.is_over or live.sandbox.state is SandboxState.RELEASING:
            raise SandboxReleased(
                f"cannot use sandbox {reference}: it is {live.sandbox.state}",
                hint="create another one",
            )
        return live

    def visible(self, caller: Caller) -> list[LiveSandbox]:
        """Return all sandboxes that the caller may see, oldest first."""
        lives = self._sandboxes.values()
        return [live for live in lives if caller.may_see(live.sandbox.owner_uid)]

    def made_by(self, caller: Caller, request_id: str) -> LiveSandbox | None:
        """Return the sandbox that an earlier sending of the same request made."""
        for live in self.visible(caller):
            if live.sandbox.request_id == request_id:
                return live
        return None

    def check_quota(
        self,
        owner_uid: int,
        *,
        sandboxes: int = 0,
        memory_bytes: int = 0,
        executions: int = 0,
        record_bytes: int = 0,
        held_bytes: int = 0,
    ) -> None:
        """Raise QuotaExceeded when the owner's use plus these amounts passes the owner's share.

        held_bytes: memory or record that the changed sandbox keeps.
        """
        lives, mine = self._lives(owner_uid), self._reserved(owner_uid)
        used = {
            "sandboxes": len(lives) + len(mine),
            "memory_bytes": _promised(lives, mine),
            "executions": _executing(lives),
            "record_bytes": sum(live.record_bytes for live in lives)
            + sum(one.record_bytes for one in mine),
        }
        asked = {
            "sandboxes": sandboxes,
            "memory_bytes": memory_bytes,
            "executions": executions,
            "record_bytes": record_bytes,
        }
        for what, more in asked.items():
            if more > 0:
                held = held_bytes if what.endswith("_bytes") else 0
                self.quota.check(
                    owner_uid=owner_uid, what=what, used=used[what], asked=more, held=held
                )
        records, wanted = self.quota.records, used["record_bytes"] + record_bytes
        if records is not None and record_bytes > 0 and owner_uid != 0 and wanted > records.little:
            others = self._records_of_others(owner_uid)
            self.quota.check_share(owner_uid, wanted - record_bytes, record_bytes, others)

    def _records_of_others(self, owner_uid: int) -> int:
        """Return the bytes of records of all owners except this owner and root."""
        kept = [(live.sandbox.owner_uid, live.record_bytes) for live in self._lives()]
        kept += [(one.owner_uid, one.record_bytes) for one in self._reservations]
        return sum(size for uid, size in kept if uid not in (0, owner_uid))

    def terminals_for(self, owner_uid: int, *, has_tty: bool) -> int:
        """Return the number of terminals for an execution that already counts as starting.

        has_tty: the execution has a terminal, so the answer is at least 1. Raises QuotaExceeded and
        CapacityExceeded.
        """
        everybody = list(self._sandboxes.values())
        mine = [live for live in everybody if live.sandbox.owner_uid == owner_uid]
        share = self.terminals.share(
            of_caller=_executing(mine) - 1, of_all=_executing(everybody) - 1
        )
        if not has_tty:
            return share
        self.terminals.check(
            owner_uid=owner_uid, of_caller=_on_terminals(mine), of_all=_on_terminals(everybody)
        )
        return max(1, share)

    def check_tasks(self, live: LiveSandbox, pids: int, *, is_sum_held: bool) -> None:
        """Check the processes and threads of all busy sandboxes, with `live` among them at `pids`.

        is_sum_held: the kernel limits the sum of all sandboxes. Idle sandboxes count zero. Raises
        QuotaExceeded over the owner's share, CapacityExceeded over the host's sum.
        """
        others = [
            one
            for one in self._sandboxes.values()
            if one is not live and (one.starting or one.running())
        ]
        owner = live.sandbox.owner_uid
        mine = sum(one.sandbox.limits.pids for one in others if one.sandbox.owner_uid == owner)
        self.quota.check(owner_uid=owner, what="pids", used=mine, asked=pids)
        if not is_sum_held:
            self.tasks.check(pids, sum(one.sandbox.limits.pids for one in others))

    @property
    def committed_bytes(self) -> int:
        """Memory promised to all sandboxes, including sandboxes under creation."""
        return _promised(self._lives(), self._reservations)

    def share_of(self, owner_uid: int) -> tuple[int, int]:
        """Return an owner's promised memory in bytes and number of running executions."""
        lives = self._lives(owner_uid)
        return _promised(lives, self._reserved(owner_uid)), _executing(lives)

    @contextmanager
    def reservation(
        self, owner_uid: int, name: str | None, memory_bytes: int, record_bytes: int = 0
    ) -> Iterator[None]:
        """Hold name, memory and record bytes. Raises NameInUse, QuotaExceeded, CapacityExceeded."""
        if name is not None and self._has_name(owner_uid, name):
            raise NameInUse(
                f"cannot create sandbox {name!r}: the name is in use",
                hint="choose another name, or release the sandbox that has it",
                details={"name": name},
            )
        self.check_quota(
            owner_uid, sandboxes=1, memory_bytes=memory_bytes, record_bytes=record_bytes
        )
        self.budget.check(memory_bytes, self.committed_bytes)
        entry = _Reservation(owner_uid, name, memory_bytes, record_bytes)
        self._reservations.append(entry)
        try:
            yield
        finally:
            self._reservations.remove(entry)

    def _has_name(self, owner_uid: int, name: str) -> bool:
        if any(one.name == name for one in self._reserved(owner_uid)):
            return True
        return any(live.sandbox.name == name for live in self._lives(owner_uid))

    def _lives(self, owner_uid: int | None = None) -> list[LiveSandbox]:
        """Return the sandboxes that are not over, of one owner or of all."""
        found = [live for live in self._sandboxes.values() if not live.is_over]
        return [one for one in found if owner_uid in (None, one.sandbox.owner_uid)]

    def _reserved(self, owner_uid: int) -> list[_Reservation]:
        return [one for one in self._reservations if one.owner_uid == owner_uid]


def _promised(lives: Iterable[LiveSandbox], reserved: Iterable[_Reservation]) -> int:
    """Return the memory of sandboxes, and of sandboxes under creation, in bytes."""
    made = sum(live.sandbox.limits.memory_bytes for live in lives)
    return made + sum(one.memory_bytes for one in reserved)


def _executing(lives: Iterable[LiveSandbox]) -> int:
    return sum(len(live.running()) + live.starting for live in lives)


def _on_terminals(lives: Iterable[LiveSandbox]) -> int:
    """Count executions with a terminal and starting executions, except the asking execution."""
    lives = list(lives)
    running = (one for live in lives for one in live.running())
    with_one = sum(one.execution.command.tty is not None for one in running)
    return with_one + sum(live.starting for live in lives) - 1
