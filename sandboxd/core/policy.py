# SPDX-License-Identifier: Apache-2.0
"""Admission: defaults, bounds, quotas and the host's budgets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sandboxd.core.fair import FairSum
from sandboxd.core.limits import BY_NAME, Owners, Unit
from sandboxd.core.model import EnforcedBy, Enforcement, LimitChanges, Limits
from sandboxd.core.quantity import format_bytes
from sandboxd.errors import (
    CapacityExceeded,
    ConfigError,
    InvalidRequest,
    LimitTooLarge,
    LimitTooSmall,
    LimitUnsupported,
    QuotaExceeded,
)

# Below this size the shim, which shares the limit, cannot get pages.
MIN_MEMORY_BYTES = 4 << 20
DEFAULT_MEMORY_BYTES = 2 << 30
DEFAULT_RESERVE_BYTES = 256 << 20
_DAY_SECONDS = 86400.0
# The upper bound without a setting.
_LONGEST_SECONDS = 366 * _DAY_SECONDS
# The host's reserve of processes and threads: a share, and a least number.
_TASKS_KEPT_SHARE = 8
_TASKS_KEPT_LEAST = 1024
# kernel.pty.max less kernel.pty.reserve, as the kernel has them.
DEFAULT_TERMINALS = 4096 - 1024
# Executions with a terminal that every caller may have.
_LITTLE_TERMINALS = 4
# Upper bound of an execution's terminals.
MAX_TERMINALS = 64
# The sum of shares pool / _TERMINAL_SHARE / k, each at most MAX_TERMINALS, stays within the pool:
# the sum is less than pool / _TERMINAL_SHARE * (2 + ln MAX_TERMINALS).
_TERMINAL_SHARE = 7
# systemd's UIDS-GIDS page leaves this range unassigned; useradd's subordinate ids (login.defs(5))
# and LXD's containers begin above. All ids fit into tar's ustar format, up to 2,097,151.
DEFAULT_UID_FIRST = 65536
DEFAULT_UID_COUNT = 100_000 - DEFAULT_UID_FIRST


@dataclass(frozen=True, slots=True)
class LimitPolicy:
    """The server's default limits and maxima."""

    defaults: Limits
    maxima: Mapping[str, float]

    def for_sandbox(self, asked: LimitChanges) -> Limits:
        """Return the defaults with the changes. Raises LimitTooSmall, LimitTooLarge."""
        self._check_bounds(asked)
        return self.changed(self.defaults, asked)

    def changed(self, limits: Limits, asked: LimitChanges) -> Limits:
        """Return the changed limits; file_size_bytes follows disk_bytes unless asked for."""
        changed = limits.with_changes(asked)
        follows = asked.file_size_bytes is None and limits.file_size_bytes == limits.disk_bytes
        if asked.disk_bytes is None or not follows:
            return changed
        most = self.maxima.get("file_size_bytes", asked.disk_bytes)
        return replace(changed, file_size_bytes=int(min(asked.disk_bytes, most)))

    def for_execution(
        self, sandbox: Limits, asked: LimitChanges, *, at_leisure: bool = False
    ) -> Limits:
        """Return the sandbox's limits with the changes; all but shares at most the sandbox's own.

        at_leisure: interactive without a named timeout, so the longest allowed timeout applies.
        Raises InvalidRequest, LimitTooSmall, LimitTooLarge.
        """
        self._check_bounds(asked)
        values = asked.as_dict()
        for name in values:
            if BY_NAME[name].owners is Owners.SANDBOX:
                raise InvalidRequest.field(f"limits.{name}", "belongs to the sandbox")
        for name, value in values.items():
            bound = getattr(sandbox, name)
            if BY_NAME[name].bounds_executions and value > bound:
                raise _too_large(name, value, bound, "the sandbox's own limit")
        if at_leisure and asked.timeout_seconds is None:
            longest = self.maxima.get("timeout_seconds", _LONGEST_SECONDS)
            sandbox = replace(sandbox, timeout_seconds=max(sandbox.timeout_seconds, longest))
        return sandbox.with_changes(asked)

    def _check_bounds(self, asked: LimitChanges) -> None:
        if asked.memory_bytes is not None and asked.memory_bytes < MIN_MEMORY_BYTES:
            raise LimitTooSmall(
                f"cannot take memory_bytes {asked.memory_bytes}: the least is "
                f"{MIN_MEMORY_BYTES} bytes ({format_bytes(MIN_MEMORY_BYTES)})",
                hint="give the sandbox at least what an interpreter needs, for example 64M",
                details={"limit": "memory_bytes", "asked": asked.memory_bytes,
                         "minimum": MIN_MEMORY_BYTES},
            )  # fmt: skip
        for name, value in asked.as_dict().items():
            bound = self.maxima.get(name)
            if bound is not None and value > bound:
                raise _too_large(name, value, bound, "this server's maximum")


def _too_large(name: str, value: float, bound: float, whose: str) -> LimitTooLarge:
    return LimitTooLarge(
        f"cannot take {name} {_shown(name, value)}: {whose} is {_shown(name, bound)}",
        hint="ask for less; requests are never clamped",
        details={"limit": name, "asked": value, "maximum": bound},
    )


def _shown(name: str, value: float) -> str:
    """Return a value for a message; sizes to the byte, since compared sizes may be close."""
    unit = BY_NAME[name].unit
    if unit is Unit.SECONDS and value >= _DAY_SECONDS:
        return f"{value:.12g} ({value / _DAY_SECONDS:.4g} days)"
    if unit not in (Unit.BYTES, Unit.BYTES_PER_SECOND):
        return f"{value:g}"
    return f"{int(value)} ({format_bytes(int(value))})"


def _exact(size_bytes: int) -> str:
    """Return a size to the byte, for a hint that a caller may repeat."""
    return f"{size_bytes} bytes ({format_bytes(size_bytes)})"


def check_required(
    required: Iterable[str], by: EnforcedBy | None, enforcement: Mapping[str, Enforcement]
) -> None:
    """Raise LimitUnsupported unless held (by `by`); InvalidRequest for an unknown name."""
    for name in required:
        if name not in enforcement:
            raise InvalidRequest.field("require", f"{name!r} is not a limit")
        held = enforcement[name]
        weak = by is EnforcedBy.KERNEL and held.by is not EnforcedBy.KERNEL
        if held.by is EnforcedBy.NONE or weak:
            lack = f"cannot enforce {name} on this host: {held.detail}"
            if held.by is not EnforcedBy.NONE:
                who = f"the {held.by.value} holds it ({held.detail})"
                lack = f"cannot have the kernel enforce {name} on this host: {who}"
            raise LimitUnsupported(
                lack,
                hint="see `sandboxctl doctor` for what this host lacks",
                details={"limit": name, "enforced_by": held.by.value, "detail": held.detail},
            )


_QUOTA_NAMES = {
    "memory_bytes": "memory",
    "record_bytes": "environment, metadata and arguments",
}


@dataclass(frozen=True, slots=True)
class CallerQuota:
    """Upper bounds of all sandboxes of an owner together; None = unbounded."""

    sandboxes: int | None = None
    memory_bytes: int | None = None
    executions: int | None = None
    # Sum over sandboxes with running executions.
    pids: int | None = None
    record_bytes: int | None = None

    @property
    def records(self) -> FairSum | None:
        """Bounds of all records except root's; three owners may use the full share at once."""
        if self.record_bytes is None:
            return None
        most = self.record_bytes
        return FairSum(total=8 * most, little=most // 16, most=most)

    def check_share(self, owner_uid: int, used: int, asked: int, others: int) -> None:
        """Raise QuotaExceeded when `asked` more bytes of records do not fit beside `others`."""
        if self.records is None or used + asked <= self.records.share(others):
            return
        raise QuotaExceeded(
            f"cannot keep more {_QUOTA_NAMES['record_bytes']} for uid {owner_uid}: "
            f"{format_bytes(used)} are kept, its share beside what others have",
            hint="release a sandbox or wait for an execution to end",
            details={"quota": "record_bytes", "maximum": self.records.most, "used": used,
                     "asked": asked},
        )  # fmt: skip

    def check(self, *, owner_uid: int, what: str, used: int, asked: int, held: int = 0) -> None:
        """Raise QuotaExceeded when `asked` more of the quota `what` do not fit.

        held: the part of `used` that the changed sandbox keeps.
        """
        bound = getattr(self, what)
        if bound is None or used + asked <= bound:
            return
        named = _QUOTA_NAMES.get(what, what)
        show = format_bytes if "bytes" in what else str
        never = held + asked > bound
        exact = _exact(bound) if "bytes" in what else str(bound)
        raise QuotaExceeded(
            f"cannot give uid {owner_uid} more {named}: {show(used)} of {show(bound)} are in use, "
            f"and {show(asked)} more were asked for",
            hint=f"ask for at most {exact}: no caller may have more (max_{what}_per_caller)"
            if never
            else "release a sandbox or wait for an execution to end",
            details={"quota": what, "maximum": bound, "used": used, "asked": asked},
            retryable=not never,
        )


@dataclass(frozen=True, slots=True)
class TaskBudget:
    """The processes and threads of all sandboxes together.

    The host keeps a reserve, since a full table of tasks refuses root's forks too. host: the host's
    maximum. source: the origin of the maximum.
    """

    host: int
    source: str

    @property
    def total(self) -> int:
        """The aggregate limit."""
        kept = max(self.host // _TASKS_KEPT_SHARE, min(_TASKS_KEPT_LEAST, self.host // 2))
        return max(1, self.host - kept)

    @property
    def largest(self) -> int:
        """The maximum of a sandbox: half of the total."""
        return max(1, self.total // 2)

    def check(self, asked: int, committed: int) -> None:
        """Raise CapacityExceeded when `asked` more do not fit beside `committed`."""
        if committed + asked <= self.total:
            return
        never = asked > self.total
        cannot = f"cannot let a sandbox with pids {asked} run"
        raise CapacityExceeded(
            f"{cannot}: all together may have {self.total} processes and threads"
            if never
            else f"{cannot}: sandboxes that run may have too many of {self.total} processes and "
            "threads already",
            hint=f"give the sandbox at most {self.total} pids ({self.source})"
            if never
            else "wait for an execution to end, or give sandboxes fewer pids",
            details={"tasks_total": self.total, "tasks_asked": asked},
            of_others={"tasks_committed": committed},
            retryable=not never,
        )


@dataclass(frozen=True, slots=True)
class TerminalBudget:
    """The pseudo-terminals of all sandboxes together.

    usable: kernel.pty.max less the kernel's reserve for the host. A quarter is for executions with
    a terminal, one each. Of the rest an execution gets fewer the more executions run: the k-th
    running execution started beside at least k-1 executions, so that the sums stay bounded
    whichever end.
    """

    usable: int = DEFAULT_TERMINALS

    @property
    def total(self) -> int:
        """The aggregate limit: seven eighths, the rest is the host's."""
        return self.usable - self.usable // 8

    def share(self, *, of_caller: int, of_all: int) -> int:
        """Return the terminals of an execution beside so many of the caller, and of all."""
        pool = self.total - self.total // 4
        mine = pool // (2 * _TERMINAL_SHARE * (of_caller + 1))
        return min(MAX_TERMINALS, mine, pool // (_TERMINAL_SHARE * (of_all + 1)))

    def check(self, *, owner_uid: int, of_caller: int, of_all: int) -> None:
        """Raise QuotaExceeded or CapacityExceeded when no terminal is left for an execution."""
        kept = self.total // 4
        if of_all >= kept:
            raise CapacityExceeded(
                f"cannot give an execution a terminal: {kept} have one, as many as may have",
                hint="wait for one to end, run without tty, or raise kernel.pty.max"
                if kept
                else "run without tty, or raise kernel.pty.max",
                details={"terminals_total": kept},
                retryable=kept > 0,
            )
        fair = FairSum(kept, _LITTLE_TERMINALS, max(_LITTLE_TERMINALS, kept // 4))
        if of_caller >= fair.share(of_all - of_caller):
            raise QuotaExceeded(
                f"cannot give uid {owner_uid} another terminal: {of_caller} of its executions have "
                "one, its share beside what others have",
                hint="wait for one to end, or run without tty",
                details={"quota": "terminals", "maximum": fair.most, "used": of_caller},
            )


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory that all sandboxes' limits may promise together: host limit minus reserve."""

    host_bytes: int
    reserve_bytes: int

    @property
    def total_bytes(self) -> int:
        """The aggregate limit."""
        return self.host_bytes - self.reserve_bytes

    def check(self, asked_bytes: int, committed_bytes: int, *, held_bytes: int = 0) -> None:
        """Raise CapacityExceeded when `asked_bytes` more do not fit.

        held_bytes: the part of `committed_bytes` that the changed sandbox keeps.
        """
        if committed_bytes + asked_bytes <= self.total_bytes:
            return
        whole, total = held_bytes + asked_bytes, format_bytes(self.total_bytes)
        never = whole > self.total_bytes
        raise CapacityExceeded(
            f"cannot give a sandbox {format_bytes(whole)} of memory: all together may have {total}"
            if never
            else f"cannot reserve {format_bytes(asked_bytes)} of memory: less is free of the "
            f"{total} that sandboxes may have together",
            hint=f"ask for at most {_exact(self.total_bytes)}; the host has no more for sandboxes"
            if never
            else "release a sandbox, ask for less memory, or try again later",
            details={"budget_bytes": self.total_bytes, "asked_bytes": asked_bytes},
            of_others={"committed_bytes": committed_bytes},
            retryable=not never,
        )

    def default_memory(self, explicit: int | None) -> int:
        """Return the memory limit, by default min(2 GiB, half the budget). Raises ConfigError."""
        if self.total_bytes < MIN_MEMORY_BYTES:
            raise ConfigError(
                f"cannot start: the host's {format_bytes(self.host_bytes)} less the reserve of "
                f"{format_bytes(self.reserve_bytes)} leave no room for a sandbox",
                hint="lower SANDBOX_WORKER_MEMORY_RESERVE_BYTES",
            )
        if explicit is None:
            return min(DEFAULT_MEMORY_BYTES, max(MIN_MEMORY_BYTES, self.total_bytes // 2))
        if explicit > self.total_bytes:
            raise ConfigError(
                f"cannot start: the default memory limit of {format_bytes(explicit)} does not fit "
                f"into the budget of {format_bytes(self.total_bytes)} even once",
                hint="lower SANDBOX_MEMORY_LIMIT_BYTES or the reserve",
            )
        return explicit
