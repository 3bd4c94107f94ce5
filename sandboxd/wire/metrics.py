# SPDX-License-Identifier: Apache-2.0
"""Answers about the usage of a sandbox and of executions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from sandboxd.core.model import Pressure, Sandbox, SandboxUsage
from sandboxd.wire.answers import Answer


class MemoryMetrics(Answer):
    """Memory in bytes; anon, file (page cache, files in memory) and swap are parts of current."""

    current_bytes: int | None
    peak_bytes: int | None
    anon_bytes: int | None
    file_bytes: int | None
    swap_bytes: int | None


class CpuMetrics(Answer):
    """CPU time used, and time throttled by the limit, in seconds."""

    seconds: float | None
    throttled_seconds: float | None


class PidsMetrics(Answer):
    """Processes and threads of programs."""

    current: int | None
    peak: int | None


class IoMetrics(Answer):
    """Bytes from and to block devices so far."""

    read_bytes: int | None
    written_bytes: int | None


class DiskMetrics(Answer):
    """Home and /tmp."""

    used_bytes: int | None


class PressureMetrics(Answer):
    """Pressure stalls: percent of the time in which some tasks, or all tasks (full), waited."""

    some_avg10_percent: float
    some_avg60_percent: float
    some_avg300_percent: float
    some_total_seconds: float
    full_avg10_percent: float | None
    full_avg60_percent: float | None
    full_avg300_percent: float | None
    full_total_seconds: float | None

    @classmethod
    def of(cls, pressure: Pressure) -> PressureMetrics:
        """Return the answer about one resource."""
        some, full = pressure.some_percent, pressure.full_percent or (None, None, None)
        return cls(
            some_avg10_percent=some[0],
            some_avg60_percent=some[1],
            some_avg300_percent=some[2],
            some_total_seconds=pressure.some_seconds,
            full_avg10_percent=full[0],
            full_avg60_percent=full[1],
            full_avg300_percent=full[2],
            full_total_seconds=pressure.full_seconds,
        )


class ExecutionMetrics(Answer):
    """Executions whose records are kept."""

    running: int
    total: int


class UsedMetrics(Answer):
    """The usage of a sandbox or an execution; null where this host cannot measure."""

    memory: MemoryMetrics
    cpu: CpuMetrics
    pids: PidsMetrics
    io: IoMetrics
    pressure: dict[str, PressureMetrics] | None

    @classmethod
    def of_used(cls, used: SandboxUsage, **more: Any) -> Self:
        """Return the answer about `used`; more: further fields of the class."""
        pressure = used.pressure
        return cls(
            memory=MemoryMetrics(
                current_bytes=used.memory_bytes,
                peak_bytes=used.memory_peak_bytes,
                anon_bytes=used.memory_anon_bytes,
                file_bytes=used.memory_file_bytes,
                swap_bytes=used.swap_bytes,
            ),
            cpu=CpuMetrics(seconds=used.cpu_seconds, throttled_seconds=used.cpu_throttled_seconds),
            pids=PidsMetrics(current=used.pids, peak=used.pids_peak),
            io=IoMetrics(read_bytes=used.io_read_bytes, written_bytes=used.io_written_bytes),
            pressure=None
            if pressure is None
            else {name: PressureMetrics.of(one) for name, one in pressure.items()},
            **more,
        )


class MetricsAnswer(UsedMetrics):
    """The usage of a sandbox; `by_execution`: usage by id of running executions, if asked for."""

    sandbox_id: str
    disk: DiskMetrics
    executions: ExecutionMetrics
    by_execution: dict[str, UsedMetrics] | None

    @classmethod
    def of(
        cls,
        sandbox: Sandbox,
        used: SandboxUsage,
        *,
        running: int,
        total: int,
        by_execution: Mapping[str, SandboxUsage] | None = None,
    ) -> MetricsAnswer:
        """Return the answer about `sandbox` at this time."""
        each = None if by_execution is None else by_execution.items()
        return cls.of_used(
            used,
            sandbox_id=sandbox.id,
            disk=DiskMetrics(used_bytes=used.disk_bytes),
            executions=ExecutionMetrics(running=running, total=total),
            by_execution=None
            if each is None
            else {name: UsedMetrics.of_used(one) for name, one in each},
        )
