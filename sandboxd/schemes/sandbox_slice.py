# SPDX-License-Identifier: Apache-2.0
"""A sandbox's place under systemd, and what slices and scopes have in common."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sandboxd.cgroup import limits as cgroup_limits
from sandboxd.cgroup import tree
from sandboxd.core.limits import BY_NAME, SCOPE_LIMITS, Unit
from sandboxd.core.model import Limits
from sandboxd.errors import LimitNotApplied, SandboxdError, UnitMissing
from sandboxd.systemd.access_filter import AccessFilter
from sandboxd.systemd.manager import Manager
from sandboxd.systemd.properties import Property

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SandboxSlice:
    """A sandbox's slice as this daemon last set it."""

    sandbox_id: str
    unit: str
    directory: str
    limits: Limits
    access_filter: AccessFilter
    scopes: set[str] = field(default_factory=set)
    tasks: int = 0
    # Held while the slice's properties change.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def tasks_wanted(self, limits: Limits) -> int:
        """pids for the programs, and one for each shim; room for one even when none runs."""
        return limits.pids + max(1, len(self.scopes))


def expected(limits: Limits, *, tasks: int, io_path: str | None) -> Mapping[str, float]:
    """What the cgroup files should say."""
    values = {name: getattr(limits, name) for name in SCOPE_LIMITS if io_path or not is_io(name)}
    return {**values, "pids": tasks}


def is_io(name: str) -> bool:
    """Whether a limit is one of a disk."""
    return BY_NAME[name].unit is Unit.BYTES_PER_SECOND


def verify(unit: str, directory: str, asked: Mapping[str, float]) -> None:
    """Raise LimitNotApplied unless every limit is in force."""
    wrong = cgroup_limits.mismatches(directory, asked)
    if wrong:
        raise LimitNotApplied(
            f"cannot hold the limits of {unit}: {'; '.join(wrong)}",
            hint="see the journal of systemd (PID 1) for the reason",
            details={"unit": unit, "mismatches": wrong},
        )


async def change(manager: Manager, unit: str, directory: str, changed: Sequence[Property]) -> None:
    """Change a unit's properties; raises UnitMissing where its cgroup is not there."""
    if not tree.exists(directory):
        raise UnitMissing(f"cannot change {unit}: it is not active", details={"unit": unit})
    await manager.set_properties(unit, changed)


async def quietly(work: Callable[[], Awaitable[None]], what: str) -> None:
    """Undo something; the error that led to it is the one to be told."""
    try:
        await work()
    except SandboxdError as exc:
        _log.warning("Cannot %s: %s", what, exc)
