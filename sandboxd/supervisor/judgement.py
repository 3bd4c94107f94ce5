# SPDX-License-Identifier: Apache-2.0
"""Whether groups of processes are over a memory limit, and the words of a verdict."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from sandboxd.supervisor import group
from sandboxd.supervisor.execution import Execution
from sandboxd.supervisor.group import Group
from sandboxd.supervisor.host import Abilities
from sandboxd.supervisor.memory import MemoryGauge, Sums


def is_over(
    gauge: MemoryGauge,
    groups: Sequence[Group],
    executions: Iterable[Execution],
    abilities: Abilities,
) -> bool:
    """Judge the groups' last look; reads more only where the limit may be passed."""
    files = _file_bytes(executions)
    seen = group.sums(groups, files)
    if seen.upper_bytes > gauge.limit_bytes:
        for one in groups:
            one.look_at_memory()
        seen = group.closer(group.sums(groups, files), groups)
    return gauge.is_over(seen, lambda: _measure(gauge, groups, seen, abilities), time.monotonic)


def oom_verdict(owner: str, gauge: MemoryGauge) -> dict[str, Any]:
    """owner: "sandbox" or "execution"."""
    return {"reason": "oom", "owner": owner, "limit_bytes": gauge.limit_bytes,
            "used_bytes": gauge.used_bytes}  # fmt: skip


def own_bytes(execution: Execution) -> int:
    """At most this much is one execution's."""
    return group.sums([execution], _file_bytes([execution])).upper_bytes


def _measure(gauge: MemoryGauge, groups: Sequence[Group], seen: Sums, abilities: Abilities) -> int:
    if abilities.measures_exactly:
        with suppress(PermissionError):
            return group.measure(groups, seen.file_bytes, gauge.limit_bytes)
    return seen.upper_bytes


def _file_bytes(executions: Iterable[Execution]) -> int:
    """Files in memory; what several executions have in common counts once."""
    memfds: dict[int, int] = {}
    mounts: dict[int, int] = {}
    segments: dict[int, int] = {}
    for execution in executions:
        memfds.update(execution.memfds)
        mounts.update([execution.mounted])
        segments.update([execution.segments])
    return sum(map(sum, (memfds.values(), mounts.values(), segments.values())))
