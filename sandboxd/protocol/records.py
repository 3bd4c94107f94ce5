# SPDX-License-Identifier: Apache-2.0
"""Files that shims write for the daemon. Standard library only.

An execution's record directory, root's alone:
  start.json   the shim's pid, start time and boot, written before it reports "ready"
  stdout, stderr   the output spools
  stdout.times, stderr.times   when output came (times.py); of a stream with output alone
  record.json  the raw facts of the end, written before the shim exits

A shim lives through an upgrade of the daemon: fields that are added here need defaults, and former
names are read as well.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sandboxd.osutil.files import temporary_name, write_whole
from sandboxd.protocol.codec import Codec
from sandboxd.protocol.evidence import MeasuredUsage, Verdict

# Of the messages between daemon and spawner (spawning.py).
PROTOCOL = 7

START_FILE = "start.json"
RECORD_FILE = "record.json"
STDOUT_FILE = "stdout"
STDERR_FILE = "stderr"

# A packet holds no command, no output and no path: far below any socket buffer.
MAX_PACKET_BYTES = 16 * 1024
# The most argv and environment of a sandbox and an execution, each byte escaped.
MAX_SPEC_BYTES = 32 * 1024 * 1024
MAX_RECORD_BYTES = 16 * 1024
MAX_BUILDER_ANSWER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class StartRecord:
    """A shim. start_time: of the pid, in clock ticks of the boot (proc(5), stat)."""

    protocol: int
    pid: int
    start_time: int
    boot_id: str
    pid_namespace: bool
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """Kept bytes of an output. error: why the rest could not be kept."""

    FORMER_NAMES: ClassVar[Mapping[str, str]] = {"size": "size_bytes"}
    size_bytes: int
    truncated: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """Counters of the cgroups above when an execution starts; None where the kernel lacks one."""

    sandbox_oom: int | None = None
    aggregate_oom: int | None = None
    sandbox_pids_max: int | None = None
    aggregate_pids_max: int | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of the scope and of the cgroups above at the end (cgroup/counters.py)."""

    FORMER_NAMES: ClassVar[Mapping[str, str]] = {
        "memory_peak": "memory_peak_bytes",
        "io_read": "io_read_bytes",
        "io_written": "io_written_bytes",
    }
    sandbox_oom: int | None = None
    aggregate_oom: int | None = None
    sandbox_pids_max: int | None = None
    aggregate_pids_max: int | None = None
    oom: int | None = None
    oom_kill: int | None = None
    memory_peak_bytes: int | None = None
    pids_max: int | None = None
    pids_peak: int | None = None
    pids_limit: int | None = None
    cpu_usec: int | None = None
    cpu_user_usec: int | None = None
    cpu_system_usec: int | None = None
    cpu_throttled_usec: int | None = None
    io_read_bytes: int | None = None
    io_written_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class EndRecord:
    """The raw facts of an execution's end.

    reason: as of shim/ending.py. started_at, finished_at: seconds since 1970. counters: None
    without a scope. verdict, supervised: a supervisor's; None without one.
    """

    FORMER_NAMES: ClassVar[Mapping[str, str]] = {
        "io_read": "io_read_bytes",
        "io_written": "io_written_bytes",
        "largest_process": "largest_process_bytes",
    }
    protocol: int
    reason: str
    kill_code: str | None
    wait_status: int | None
    started_at: float
    wall_seconds: float
    finished_at: float
    kill_complete: bool
    leftovers_killed: int
    cpu_user_seconds: float
    cpu_system_seconds: float
    streams: tuple[StreamRecord, ...]
    baseline: Baseline
    counters: Counters | None
    pids_at_end: int | None = None
    io_read_bytes: int | None = None
    io_written_bytes: int | None = None
    largest_process_bytes: int | None = None
    verdict: Verdict | None = None
    supervised: MeasuredUsage | None = None


START = Codec(StartRecord)
END = Codec(EndRecord)


def reserve_record(directory: str) -> None:
    """Reserve the disk space of an execution's record before the start. Raises OSError.

    The record must not be lost to a disk that the execution's output filled.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(temporary_name(os.path.join(directory, RECORD_FILE)), flags, 0o600)
    try:
        os.posix_fallocate(fd, 0, MAX_RECORD_BYTES)
    finally:
        os.close(fd)


def write_end(directory: str, record: EndRecord) -> None:
    """Write the record into the reserved space. Raises OSError."""
    write_whole(os.path.join(directory, RECORD_FILE), END.encode(record), keeps_space=True)
