# SPDX-License-Identifier: Apache-2.0
"""Limits -> systemd properties with their D-Bus signatures. Pure tables.

Source: org.freedesktop.systemd1(5); systemd.resource-control(5); systemd.kill(5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from sandboxd.core.limits import LIMITS, Unit
from sandboxd.core.model import Limits

_SIGKILL = 9
# Time for a unit's processes to die of SIGKILL before systemd says "failed".
_STOP_USEC = 5_000_000
_INFINITY = (1 << 64) - 1


class Property(NamedTuple):
    """A setting of a unit."""

    name: str
    signature: str
    value: Any


_NO_SWAP = Property("MemorySwapMax", "t", 0)


@dataclass(frozen=True, slots=True)
class Features:
    """What the manager's version takes; 257 is the tested one."""

    pidfds: bool
    scope_oom_policy: bool

    @classmethod
    def of_version(cls, version: int) -> Features:
        """Return the features of a version.

        OOMPolicy= of scopes came with 253; PIDFDs are taken from 255 on, which surely has the
        property.
        """
        return cls(pidfds=version >= 255, scope_oom_policy=version >= 253)


def limit_properties(limits: Limits, *, tasks: int, io_path: str | None) -> list[Property]:
    """Return a unit's limits, all settable live. tasks: TasksMax. io_path None: no IO limits."""
    properties = []
    for limit in LIMITS:
        if limit.unit_property is not None:
            value = tasks if limit.name == "pids" else getattr(limits, limit.name)
            properties += _properties(limit.unit_property, limit.unit, value, io_path)
        if limit.name == "memory_bytes":
            properties.append(_NO_SWAP)
    return properties


def _properties(name: str, unit: Unit, value: float, io_path: str | None) -> list[Property]:
    """Return the property that carries a limit; none for IO without a disk."""
    match unit:
        case Unit.CORES:
            return [Property(name, "t", max(1, round(value * 1_000_000)))]
        case Unit.BYTES_PER_SECOND:
            return [] if io_path is None else [Property(name, "a(st)", [[io_path, value]])]
    return [Property(name, "t", value)]


def sandbox_slice(
    limits: Limits, *, tasks: int, io_path: str | None, description: str
) -> list[Property]:
    """Return the properties of a sandbox's slice, but for the access filter's."""
    return [
        Property("Description", "s", description),
        *_accounting(),
        *limit_properties(limits, tasks=tasks, io_path=io_path),
    ]


def plain_slice(description: str) -> list[Property]:
    """Return the properties of a slice that only groups slices."""
    return [Property("Description", "s", description)]


def bucket_weight(weight: int) -> Property:
    """The share of a slice that groups others; settable live."""
    return Property("CPUWeight", "t", weight)


def parent_slice(aggregate_bytes: int, aggregate_tasks: int, description: str) -> list[Property]:
    """Return the properties of the slice with the limits on all sandboxes together."""
    return [Property("Description", "s", description), *_accounting(),
            *aggregate_limits(aggregate_bytes, aggregate_tasks)]  # fmt: skip


def aggregate_limits(aggregate_bytes: int, aggregate_tasks: int) -> list[Property]:
    """Return the limits on all sandboxes together; settable live."""
    return [
        Property("MemoryMax", "t", aggregate_bytes),
        _NO_SWAP,
        Property("TasksMax", "t", aggregate_tasks),
    ]


def execution_scope(
    limits: Limits,
    *,
    slice_name: str,
    pid: int,
    tasks: int,
    io_path: str | None,
    description: str,
    features: Features,
) -> list[Property]:
    """Return a scope's properties; with `features.pidfds` the call's first fd is the pidfd."""
    who = Property("PIDFDs", "ah", [0]) if features.pidfds else Property("PIDs", "au", [pid])
    properties = [
        who,
        Property("Slice", "s", slice_name),
        Property("Description", "s", description),
        # SIGKILL also at a shutdown: the shim ignores SIGTERM.
        Property("KillSignal", "i", _SIGKILL),
        Property("TimeoutStopUSec", "t", _STOP_USEC),
        Property("CollectMode", "s", "inactive-or-failed"),
        Property("Delegate", "b", True),
        *_accounting(),
        *limit_properties(limits, tasks=tasks, io_path=io_path),
    ]
    if features.scope_oom_policy:
        # Every other policy answers an OOM kill by stopping the scope, the shim included.
        properties.append(Property("OOMPolicy", "s", "continue"))
    return properties


def notify_service(argv: list[str], *, description: str) -> list[Property]:
    """Return the properties of a helper that tells READY=1 and whose children outlive it."""
    return [
        Property("Description", "s", description),
        Property("Type", "s", "notify"),
        Property("NotifyAccess", "s", "main"),
        Property("KillMode", "s", "process"),
        Property("OOMScoreAdjust", "i", -900),
        # Without the systemd scheme, commands are in the service's cgroup: an OOM kill of a command
        # must not stop the service (systemd.service(5)).
        Property("OOMPolicy", "s", "continue"),
        Property("CollectMode", "s", "inactive-or-failed"),
        Property("Restart", "s", "on-failure"),
        # No start limit: all sandboxes depend on the helper.
        Property("StartLimitIntervalUSec", "t", 0),
        Property("TasksMax", "t", _INFINITY),
        Property("ExecStart", "a(sasb)", [[argv[0], argv, False]]),
    ]


def _accounting() -> list[Property]:
    names = ("MemoryAccounting", "TasksAccounting", "CPUAccounting", "IOAccounting")
    return [Property(name, "b", True) for name in names]
