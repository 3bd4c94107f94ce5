# SPDX-License-Identifier: Apache-2.0
"""Whether groups of processes are over a memory limit, and the words of a verdict."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from sandboxd.protocol.evidence import Owner, Reason, Verdict
from sandboxd.supervisor import group
from sandboxd.supervisor.execution import Execution
from sandboxd.supervisor.group import Group
from sandboxd.supervisor.host import Abilities
from sandboxd.supervisor.memory import MemoryGauge, MemoryTotals


@dataclass(frozen=True, slots=True)
class View:
    """The extent of a look: unseen growth of files in memory, and the seconds to measure."""

    abilities: Abilities
    unseen_bytes: int
    slice_seconds: float


def is_over(
    gauge: MemoryGauge, groups: Sequence[Group], executions: Iterable[Execution], view: View
) -> bool:
    """Judge the groups' last look; reads more only where the limit may be passed."""
    files = _file_bytes(groups, executions)
    unseen = view.unseen_bytes if view.abilities.sees_mapped else None
    seen = group.sums(groups, files, unseen)
    if seen.upper_bytes > gauge.limit_bytes:
        for one in groups:
            one.look_at_memory()
        seen = group.closer(group.sums(groups, files, unseen), groups)
    return gauge.is_over(
        seen, lambda: _measure(gauge, groups, seen, view), time.monotonic, view.slice_seconds
    )


def oom_verdict(owner: Owner, gauge: MemoryGauge) -> Verdict:
    """Return the verdict that the owner's limit was passed."""
    return Verdict(Reason.OOM, owner, limit_bytes=gauge.limit_bytes, used_bytes=gauge.used_bytes)


def own_bytes(execution: Execution) -> int:
    """Return an upper bound of an execution's memory in bytes."""
    return group.sums([execution], _file_bytes([execution], [execution])).upper_bytes


def _measure(
    gauge: MemoryGauge, groups: Sequence[Group], seen: MemoryTotals, view: View
) -> Generator[None, None, int]:
    if view.abilities.measures_exactly:
        try:
            return (
                yield from group.measure(
                    groups,
                    seen.file_bytes,
                    gauge.limit_bytes,
                    sees_mapped=view.abilities.sees_mapped,
                )
            )
        except PermissionError:
            # Without root a process that made itself undumpable hides from the same uid.
            return seen.upper_bytes
    return group.certain(groups, seen.file_bytes)


def _file_bytes(groups: Iterable[Group], executions: Iterable[Execution]) -> int:
    """Sum the files in memory, in bytes; files shared by executions count once."""
    files: dict[int, int] = {}
    mounts: dict[int, int] = {}
    segments: dict[int, int] = {}
    for one in groups:
        files.update(one.files)
    for execution in executions:
        mounts.update([execution.mounted])
        segments.update([execution.segments])
    return sum(map(sum, (files.values(), mounts.values(), segments.values())))
