# SPDX-License-Identifier: Apache-2.0
"""What the rlimit scheme holds, in words and in numbers: pure, from what its supervisor can do."""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandboxd.core.limits import LIMITS, Unit
from sandboxd.core.model import EnforcedBy, Enforcement, Execution, Limits
from sandboxd.protocol.dialogue import Greeting
from sandboxd.protocol.supervision import Caps
from sandboxd.schemes import common

_HELD = tuple(limit.name for limit in LIMITS if limit.supervised)
_IO_LIMITS = tuple(limit.name for limit in LIMITS if limit.unit is Unit.BYTES_PER_SECOND)


@dataclass(frozen=True, slots=True)
class SupervisorFeatures:
    """What holds limits here. Without a supervisor nothing holds a sum."""

    is_supervised: bool
    has_own_uids: bool
    reads_io: bool = False
    sees_shared: bool = False
    sees_mapped: bool = False
    measures_exactly: bool = False
    changes_rlimits: bool = False
    scheduling: str = "normal"
    missing: tuple[str, ...] = ()

    @classmethod
    def of_greeting(cls, greeting: Greeting, *, has_own_uids: bool) -> SupervisorFeatures:
        """From a supervisor's own words."""
        return cls(
            is_supervised=True,
            has_own_uids=has_own_uids,
            reads_io=greeting.reads_io,
            sees_shared=greeting.sees_shared,
            sees_mapped=greeting.sees_mapped,
            measures_exactly=greeting.measures_exactly,
            changes_rlimits=greeting.changes_rlimits,
            scheduling=greeting.scheduling,
            missing=greeting.missing,
        )


def enforcement(features: SupervisorFeatures) -> Mapping[str, Enforcement]:
    """Who holds each limit, and how precisely."""
    held = dict(common.enforcement())
    held["pids"] = _pids(features)
    for limit in LIMITS:
        if limit.file is not None and not limit.supervised:
            detail = f"only {limit.file} of a cgroup holds it, and this scheme makes no cgroups"
            held[limit.name] = Enforcement(EnforcedBy.NONE, detail)
    if not features.is_supervised:
        nobody = EnforcedBy.NONE
        held["memory_bytes"] = Enforcement(
            nobody, "nothing holds the sum; RLIMIT_DATA bounds each process"
        )
        held["cpus"] = Enforcement(nobody, "no supervisor runs to slow a sandbox down")
        for name in _IO_LIMITS:
            held[name] = Enforcement(nobody, "no supervisor runs to slow a sandbox down")
        held["cpu_seconds"] = Enforcement(
            nobody, "nothing holds the sum; RLIMIT_CPU bounds each process"
        )
        return held
    by = EnforcedBy.SUPERVISOR
    held["memory_bytes"] = Enforcement(
        by, _memory_detail(features), "looked at 10-100 times a second"
    )
    held["cpus"] = Enforcement(
        by, "SIGSTOP and SIGCONT" + _late(features), "within 5 % over 10 s; bursts of 0.1 s"
    )
    if features.reads_io:
        detail = "advisory: SIGSTOP and SIGCONT by /proc/PID/io"
        for name in _IO_LIMITS:
            held[name] = Enforcement(by, detail, "within 30 % over 10 s, in bursts")
    else:
        for name in _IO_LIMITS:
            held[name] = Enforcement(
                EnforcedBy.NONE, "the supervisor may not read /proc/PID/io: no CAP_SYS_PTRACE"
            )
    held["cpu_seconds"] = Enforcement(
        by, "the sum over its processes", "looked at 10-50 times a second"
    )
    return held


def _memory_detail(features: SupervisorFeatures) -> str:
    if features.measures_exactly:
        text = "the sum of resident sets, of proportional sets near the limit"
    else:
        text = (
            "advisory: near the limit the sum of what each process has for certain of its own, "
            "without what a fork had when it was first seen: no CAP_SYS_PTRACE"
        )
    if features.sees_shared:
        text += ", with /dev/shm, memfds and System V segments"
        if not features.sees_mapped:
            text += ", mapped ones as far as they are resident or open"
    else:
        text += ", without /dev/shm and memfds: no CAP_SYS_PTRACE or CAP_SYS_ADMIN"
    return text + _late(features)


def _late(features: SupervisorFeatures) -> str:
    return "" if features.scheduling == "real-time" else "; late on a busy host"


def _pids(features: SupervisorFeatures) -> Enforcement:
    if not features.has_own_uids:
        return Enforcement(
            EnforcedBy.NONE, "RLIMIT_NPROC would count all processes of the daemon's own uid"
        )
    detail = "RLIMIT_NPROC of the sandbox's own uid; an execution's own limit counts all of them"
    if not features.changes_rlimits:
        detail += "; running processes keep theirs on a change: no CAP_SYS_RESOURCE"
    return Enforcement(EnforcedBy.KERNEL, detail)


def rlimits(
    features: SupervisorFeatures, limits: Limits, *, address_space_bytes: int | None
) -> Mapping[str, tuple[int, int]]:
    """The common ones, and the backstops on each process."""
    chosen = dict(common.rlimits(limits))
    chosen["RLIMIT_DATA"] = _pair(data_bytes(features, limits.memory_bytes))
    chosen["RLIMIT_AS"] = _pair(address_space_bytes)
    if features.has_own_uids:
        chosen["RLIMIT_NPROC"] = (limits.pids, limits.pids)
    else:
        del chosen["RLIMIT_NPROC"]
    if limits.cpu_seconds is not None:
        soft = math.ceil(limits.cpu_seconds) + int(features.is_supervised)
        chosen["RLIMIT_CPU"] = (soft, soft + 1)
    return chosen


def _pair(size: int | None) -> tuple[int, int]:
    """Soft and hard; None: no limit."""
    chosen = resource.RLIM_INFINITY if size is None else size
    return chosen, chosen


def data_bytes(features: SupervisorFeatures, memory_bytes: int) -> int | None:
    """RLIMIT_DATA, None for none. It counts what may be written, not what is, and a program it
    refuses ends as it likes: a JVM whose heap grows has three to four times its resident set, one
    built with a sanitizer terabytes. So where a supervisor measures the sum there is none, and
    where the supervisor knows only a part of it there is room for the verdict."""
    if not features.is_supervised:
        return memory_bytes
    return None if features.measures_exactly else memory_bytes * 4 + (1 << 30)


def caps(features: SupervisorFeatures, limits: Limits) -> Caps:
    """A sandbox's, for its supervisor."""
    held: dict[str, Any] = {name: getattr(limits, name) for name in _HELD}
    return Caps(**held, data_bytes=data_bytes(features, limits.memory_bytes))


def own_caps(features: SupervisorFeatures, execution: Execution, limits: Limits) -> Caps:
    """An execution's: what it asked for itself, and what only executions have."""
    own = {name: getattr(limits, name) for name in _HELD if name in execution.own_limits}
    data = data_bytes(features, limits.memory_bytes)
    return Caps(**own, cpu_seconds=limits.cpu_seconds, data_bytes=data)
