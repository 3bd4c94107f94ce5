# SPDX-License-Identifier: Apache-2.0
"""What a sandbox's slice uses and has used, by the slice's cgroup files."""

from __future__ import annotations

from sandboxd.cgroup import counters
from sandboxd.core.model import Pressure, SandboxUsage

_RESOURCES = ("cpu", "memory", "io")


def usage_of(directory: str, *, shims: int) -> SandboxUsage:
    """Return the usage of a slice or scope, None = no file. shims: tasks that are no programs."""
    memory = counters.read_keys(directory, "memory.stat") or {}
    cpu = counters.read_keys(directory, "cpu.stat") or {}
    io = counters.read_io(directory) or {}
    pids = counters.read_number(directory, "pids.current")
    pids_peak = counters.read_number(directory, "pids.peak")
    return SandboxUsage(
        memory_bytes=counters.read_number(directory, "memory.current"),
        memory_peak_bytes=counters.read_number(directory, "memory.peak"),
        memory_anon_bytes=memory.get("anon"),
        memory_file_bytes=memory.get("file"),
        swap_bytes=counters.read_number(directory, "memory.swap.current"),
        cpu_seconds=_seconds(cpu.get("usage_usec")),
        cpu_throttled_seconds=_seconds(cpu.get("throttled_usec")),
        pids=None if pids is None else max(0, pids - shims),
        # At any peak at least one task was a shim.
        pids_peak=None if pids_peak is None else max(0, pids_peak - 1),
        io_read_bytes=io.get("rbytes"),
        io_written_bytes=io.get("wbytes"),
        pressure=_pressure(directory),
    )


def _pressure(directory: str) -> dict[str, Pressure] | None:
    """Return pressure by resource; None without CONFIG_PSI, with psi=0, or off by systemd."""
    found = {}
    for resource in _RESOURCES:
        try:
            text = counters.read_text(directory, f"{resource}.pressure")
        except OSError:
            # EOPNOTSUPP: compiled in and switched off at boot.
            return None
        if text is not None:
            found[resource] = parse_pressure(text)
    return found or None


def parse_pressure(text: str) -> Pressure:
    """Parse a *.pressure file; `full` is missing for the processor before Linux 5.13."""
    lines = {}
    for line in text.splitlines():
        kind, *fields = line.split()
        values = dict(field.split("=") for field in fields)
        averages = (float(values["avg10"]), float(values["avg60"]), float(values["avg300"]))
        lines[kind] = (averages, int(values["total"]) / 1e6)
    some, full = lines["some"], lines.get("full", (None, None))
    return Pressure(some[0], some[1], full[0], full[1])


def _seconds(usec: int | None) -> float | None:
    return None if usec is None else usec / 1e6
