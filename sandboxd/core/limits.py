# SPDX-License-Identifier: Apache-2.0
"""The table of limits: unit, owner, enforcement and option of each. Pure.

Request bodies, answers, bounds, defaults, systemd properties, the reading back of cgroup files, a
supervisor's orders, and sandboxctl's options derive from the rows. Beside a row a new limit needs a
field of `model.Limits` and `model.LimitChanges`, two settings (`daemon/config.py`,
`packaging/sandboxd.toml`) and a line of docs/api.md: tests hold all places to the table.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

# The kernel's PID_MAX_LIMIT and its default fs.nr_open.
MAX_PIDS = 1 << 22
MAX_OPEN_FILES = 1 << 20
# The kernel's bounds and default of cpu.weight (Documentation/admin-guide/cgroup-v2.rst).
MAX_CPU_WEIGHT = 10_000
DEFAULT_CPU_WEIGHT = 100


class Unit(enum.Enum):
    """What a limit's number counts; `core/quantity.py` has the bounds of all but COUNT."""

    BYTES = enum.auto()
    BYTES_PER_SECOND = enum.auto()
    SECONDS = enum.auto()
    CORES = enum.auto()
    COUNT = enum.auto()

    @property
    def is_whole(self) -> bool:
        """Whether the number is an integer."""
        return self not in (Unit.SECONDS, Unit.CORES)


class Owners(enum.Enum):
    """The allowed owners of a limit. An execution's own limit, unless a share, is at most the
    sandbox's."""

    BOTH = "sandbox and execution"
    SANDBOX = "sandbox"
    # The sandbox's is the default of executions.
    EXECUTION = "execution"


class Limit(NamedTuple):
    """A row of the table of limits."""

    # A field of `model.Limits`, and the name in JSON.
    name: str
    unit: Unit
    owners: Owners
    # sandboxctl's option and the option's help.
    option: str
    text: str
    # The setting with the server's default, None = no limit; the most is in max_<name>.
    setting: str | None
    # The largest COUNT.
    most: int | None = None
    # systemd's property, the cgroup's file, the key in it, and what its number counts.
    unit_property: str | None = None
    file: str | None = None
    key: str | None = None
    noun: str = ""
    # Whether a supervisor can hold the limit.
    supervised: bool = False
    # Of a share, which bounds nothing: the value that asks for nothing.
    neutral: int | None = None
    # The rlimit that bounds each process.
    rlimit: str | None = None

    @property
    def bounds_executions(self) -> bool:
        """Whether an execution's own value is at most the sandbox's."""
        return self.owners is Owners.BOTH and self.neutral is None


LIMITS: tuple[Limit, ...] = (
    Limit(
        "memory_bytes", Unit.BYTES, Owners.BOTH, "--memory", "memory, such as 256M",
        setting="memory_limit_bytes", supervised=True,
        unit_property="MemoryMax", file="memory.max", noun="bytes",
    ),
    Limit(
        "cpus", Unit.CORES, Owners.BOTH, "--cpus", "cores, such as 1.5 or 150%",
        setting="cpu_quota", supervised=True,
        unit_property="CPUQuotaPerSecUSec", file="cpu.max", noun="cores",
    ),
    Limit(
        "cpu_weight", Unit.COUNT, Owners.BOTH, "--cpu-weight",
        "share of the processors while they are all busy, from 1 to 10000",
        setting="cpu_weight", most=MAX_CPU_WEIGHT, neutral=DEFAULT_CPU_WEIGHT,
        unit_property="CPUWeight", file="cpu.weight",
    ),
    Limit(
        "pids", Unit.COUNT, Owners.BOTH, "--pids", "processes and threads",
        setting="pids_limit", most=MAX_PIDS, supervised=True,
        unit_property="TasksMax", file="pids.max", noun="tasks",
    ),
    Limit(
        "io_read_bytes_per_second", Unit.BYTES_PER_SECOND, Owners.BOTH, "--read-bps",
        "bytes read per second", setting="io_read_bytes_per_second", supervised=True,
        unit_property="IOReadBandwidthMax", file="io.max", key="rbps",
    ),
    Limit(
        "io_write_bytes_per_second", Unit.BYTES_PER_SECOND, Owners.BOTH, "--write-bps",
        "bytes written per second", setting="io_write_bytes_per_second", supervised=True,
        unit_property="IOWriteBandwidthMax", file="io.max", key="wbps",
    ),
    Limit(
        "disk_bytes", Unit.BYTES, Owners.SANDBOX, "--disk", "size of home and /tmp",
        setting="disk_limit_bytes",
    ),
    Limit(
        "timeout_seconds", Unit.SECONDS, Owners.EXECUTION, "--timeout", "wall clock, such as 10s",
        setting="timeout_seconds",
    ),
    Limit(
        "cpu_seconds", Unit.SECONDS, Owners.EXECUTION, "--cpu-time", "CPU time of all processes",
        setting=None,
    ),
    Limit(
        "max_output_bytes", Unit.BYTES, Owners.EXECUTION, "--max-output",
        "each of stdout and stderr", setting="max_output_bytes",
    ),
    Limit(
        "open_files", Unit.COUNT, Owners.EXECUTION, "--open-files",
        "file descriptors of a process", setting="open_files", most=MAX_OPEN_FILES,
        rlimit="RLIMIT_NOFILE",
    ),
    Limit(
        # Follows disk_bytes unless asked for separately.
        "file_size_bytes", Unit.BYTES, Owners.EXECUTION, "--file-size", "size of a file",
        setting="disk_limit_bytes", rlimit="RLIMIT_FSIZE",
    ),
)  # fmt: skip
BY_NAME: Mapping[str, Limit] = {limit.name: limit for limit in LIMITS}

# The limits of sandboxes; the rest belongs to executions.
SANDBOX_LIMITS = tuple(limit.name for limit in LIMITS if limit.owners is not Owners.EXECUTION)
# Sandbox limits that the kernel or the supervisor also enforces per execution.
SCOPE_LIMITS = tuple(limit.name for limit in LIMITS if limit.owners is Owners.BOTH)


def is_neutral(name: str, value: object) -> bool:
    """Whether the value of a share is one that needs no holder."""
    return value is not None and name in BY_NAME and BY_NAME[name].neutral == value
