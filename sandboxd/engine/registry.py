# SPDX-License-Identifier: Apache-2.0
"""What lives now: sandboxes, their executions, names and promised memory. In memory, no waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandboxd.core.model import Caller, Command, ErrorCode, Execution, Sandbox, SandboxState
from sandboxd.core.policy import Budget, CallerQuota, TaskBudget, TerminalBudget
from sandboxd.engine.batch import Reading
from sandboxd.engine.ports.host import Clock
from sandboxd.engine.ports.launch import Shim
from sandboxd.engine.retention import argument_bytes, sandbox_bytes
from sandboxd.errors import Draining, ExecutionNotFound, NameInUse, SandboxNotFound, SandboxReleased

_OVER = (SandboxState.RELEASED, SandboxState.FAILED)


@dataclass(eq=False, slots=True)
class LiveExecution:
    """An execution and what the engine holds for it. `shim` is None before and after its life.

    deadline_monotonic: when the shim should have ended it; overdue: it did not, so we did.
    kill_code: what the shim was ordered to kill it for.
    """

    execution: Execution
    shim: Shim | None = None
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    collected: asyncio.Event = field(default_factory=asyncio.Event)
    deadline_monotonic: float | None = None
    is_overdue: bool = False
    kill_code: ErrorCode | None = None
    watcher: asyncio.Task[None] | None = None
    followers: set[asyncio.Event] = field(default_factory=set)
    input_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Files of a run that are read before its sandbox is released; until it is.
    reading: Reading | None = None
    _weighed: tuple[Command, int] | None = None

    @property
    def argument_bytes(self) -> int:
        """What its record holds of arguments and environment, counted once for each command."""
        command = self.execution.command
        if self._weighed is None or self._weighed[0] is not command:
            self._weighed = command, argument_bytes(command)
        return self._weighed[1]

    def conclude(self) -> None:
        """Its outcome is final and its record kept: tell all who wait for that."""
        self.finished.set()
        for follower in self.followers:
            follower.set()


@dataclass(eq=False, slots=True)
class DiskState:
    """A sandbox's last count on disk, where the kernel keeps no books.

    most: what it has at most, which is `used` where all could be counted; else, by what the whole
    file system has grown by since then; None: nobody knows. least: what it has for certain.
    obstacle: why not all could be counted. charged: written by the API since. tolerated: so much
    over the limit ends nothing (any more). growth: the whole file system's at the count.
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
        """Exactly so much; None where nobody knows."""
        return self.most_bytes if self.obstacle is None else None


@dataclass(eq=False, slots=True)
class LiveSandbox:
    """A sandbox and what the engine holds for it.

    `starting` counts executions between the request and the exec (and `starting_bytes` their
    arguments): a release waits for them.
    `uses` are what the API does with its files: a release ends them. retry_monotonic: not before
    then is a release that failed tried again by itself.
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
        """What its owner makes this record and those of its running executions hold."""
        env, metadata = self.sandbox.env, self.sandbox.metadata
        weighed = self._weighed
        if weighed is None or weighed[0] is not env or weighed[1] is not metadata:
            weighed = self._weighed = env, metadata, sandbox_bytes(self.sandbox)
        running = sum(one.argument_bytes for one in self.running())
        return weighed[2] + running + self.starting_bytes

    @property
    def is_over(self) -> bool:
        """Whether only its records are left."""
        return self.sandbox.state in _OVER

    def touch(self, clock: Clock) -> None:
        """Somebody used it: its idle time begins anew."""
        self.sandbox.used_monotonic = clock.monotonic()
        self.sandbox.last_used_at = clock.now()

    def running(self) -> list[LiveExecution]:
        """Executions whose command may run."""
        return [live for live in self.executions.values() if live.shim is not None]

    def made_by(self, request_id: str) -> LiveExecution | None:
        """What an earlier sending of the same request started."""
        for running in self.executions.values():
            if running.execution.request_id == request_id:
                return running
        return None

    def execution(self, execution_id: str) -> LiveExecution:
        """One execution. Raises ExecutionNotFound."""
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
    """What a sandbox has that is being made."""

    owner_uid: int
    name: str | None
    memory_bytes: int
    record_bytes: int


class Registry:
    """All sandboxes of this daemon, ended ones too while their records are kept."""

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

    def __iter__(self) -> Iterator[LiveSandbox]:
        return iter(list(self._sandboxes.values()))

    def check_takes_work(self) -> None:
        """Raises Draining while an admin wants no new work here."""
        if self.is_draining:
            raise Draining(
                "cannot take new work: this host is being drained",
                hint="use another host, or ask an admin for `sandboxctl undrain`",
                details={"draining": True},
            )

    @property
    def executions_running(self) -> int:
        """How many executions run or are about to."""
        return sum(len(live.running()) + live.starting for live in self._sandboxes.values())

    def add(self, live: LiveSandbox) -> None:
        """From now on it can be found."""
        self._sandboxes[live.sandbox.id] = live

    def forget(self, live: LiveSandbox) -> None:
        """From now on it cannot be found."""
        self._sandboxes.pop(live.sandbox.id, None)

    def find(self, caller: Caller, reference: str) -> LiveSandbox:
        """By id, or by the caller's own name for a live one. Raises SandboxNotFound."""
        live = self._sandboxes.get(reference)
        if live is not None and caller.may_see(live.sandbox.owner_uid):
            return live
        for live in self._sandboxes.values():
            same = live.sandbox.name == reference and live.sandbox.owner_uid == caller.uid
            if same and not live.is_over:
                return live
        raise SandboxNotFound(f"cannot find sandbox {reference!r}")

    def find_usable(self, caller: Caller, reference: str) -> LiveSandbox:
        """The same, for a verb that changes it. Raises SandboxReleased too."""
        live = self.find(caller, reference)
        if live.is_over or live.sandbox.state is SandboxState.RELEASING:
            raise SandboxReleased(
                f"cannot use sandbox {reference}: it is {live.sandbox.state}",
                hint="create another one",
            )
        return live

    def visible(self, caller: Caller) -> list[LiveSandbox]:
        """All that the caller may see, oldest first."""
        lives = self._sandboxes.values()
        return [live for live in lives if caller.may_see(live.sandbox.owner_uid)]

    def made_by(self, caller: Caller, request_id: str) -> LiveSandbox | None:
        """What an earlier sending of the same request made."""
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
    ) -> None:
        """Raise QuotaExceeded when so much more is over the owner's share."""
        lives = [
            live
            for live in self._sandboxes.values()
            if live.sandbox.owner_uid == owner_uid and not live.is_over
        ]
        mine = [one for one in self._reservations if one.owner_uid == owner_uid]
        used = {
            "sandboxes": len(lives) + len(mine),
            "memory_bytes": sum(live.sandbox.limits.memory_bytes for live in lives)
            + sum(one.memory_bytes for one in mine),
            "executions": sum(len(live.running()) + live.starting for live in lives),
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
                self.quota.check(owner_uid=owner_uid, what=what, used=used[what], asked=more)
        records, wanted = self.quota.records, used["record_bytes"] + record_bytes
        if records is not None and record_bytes > 0 and owner_uid != 0 and wanted > records.little:
            others = self._records_of_others(owner_uid)
            self.quota.check_share(owner_uid, wanted - record_bytes, record_bytes, others)

    def _records_of_others(self, owner_uid: int) -> int:
        """What is kept for all owners but this one and root."""
        lives = (live for live in self._sandboxes.values() if not live.is_over)
        kept = [(live.sandbox.owner_uid, live.record_bytes) for live in lives]
        kept += [(one.owner_uid, one.record_bytes) for one in self._reservations]
        return sum(size for uid, size in kept if uid not in (0, owner_uid))

    def terminals_for(self, owner_uid: int, *, has_tty: bool) -> int:
        """How many an execution may open that is among those starting; at least its own where it
        has a terminal. Raises QuotaExceeded and CapacityExceeded."""
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
        """Raise QuotaExceeded when what runs may then have more processes and threads than its
        owner's share, and CapacityExceeded when more than all sandboxes together: with `live`
        among it, at `pids`. Idle sandboxes have none.

        is_sum_held: the kernel sees to the latter.
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
        """Memory promised to sandboxes, those being made included."""
        lives = [live for live in self._sandboxes.values() if not live.is_over]
        kept = sum(live.sandbox.limits.memory_bytes for live in lives)
        return kept + sum(one.memory_bytes for one in self._reservations)

    def share_of(self, owner_uid: int) -> tuple[int, int]:
        """Memory promised to an owner's sandboxes, and how many of its executions run."""
        lives = [
            live
            for live in self._sandboxes.values()
            if live.sandbox.owner_uid == owner_uid and not live.is_over
        ]
        made = sum(one.memory_bytes for one in self._reservations if one.owner_uid == owner_uid)
        promised = sum(live.sandbox.limits.memory_bytes for live in lives) + made
        return promised, sum(len(live.running()) + live.starting for live in lives)

    @contextmanager
    def reservation(
        self, owner_uid: int, name: str | None, memory_bytes: int, record_bytes: int = 0
    ) -> Iterator[None]:
        """Hold a name, memory and room for its record while a sandbox is made.

        Raises NameInUse, QuotaExceeded, CapacityExceeded.
        """
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
        if any((one.owner_uid, one.name) == (owner_uid, name) for one in self._reservations):
            return True
        return any(
            (live.sandbox.owner_uid, live.sandbox.name) == (owner_uid, name)
            for live in self._sandboxes.values()
            if not live.is_over
        )


def _executing(lives: Iterable[LiveSandbox]) -> int:
    return sum(len(live.running()) + live.starting for live in lives)


def _on_terminals(lives: Iterable[LiveSandbox]) -> int:
    """Executions with a terminal, and those that start and may have one, but for the one that
    asks."""
    lives = list(lives)
    running = (one for live in lives for one in live.running())
    with_one = sum(one.execution.command.tty is not None for one in running)
    return with_one + sum(live.starting for live in lives) - 1
