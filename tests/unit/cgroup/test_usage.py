# SPDX-License-Identifier: Apache-2.0
"""A slice's files as usage: what is missing is unknown, and never nothing."""

from __future__ import annotations

from pathlib import Path

from sandboxd.cgroup.usage import parse_pressure, usage_of
from sandboxd.core.model import SandboxUsage

PSI = (
    "some avg10=1.50 avg60=0.25 avg300=0.00 total=2500000\n"
    "full avg10=0.50 avg60=0.00 avg300=0.00 total=500000\n"
)
FILES = {
    "memory.current": "1048576\n",
    "memory.peak": "2097152\n",
    "memory.stat": "anon 700000\nfile 300000\nkernel 1000\n",
    "memory.swap.current": "0\n",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\nthrottled_usec 500000\n",
    "pids.current": "5\n",
    "pids.peak": "9\n",
    "io.stat": "254:0 rbytes=10 wbytes=20 rios=1\n8:0 rbytes=1 wbytes=2\n",
    "memory.pressure": PSI,
}


def test_every_file_gives_its_part(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    used = usage_of(str(tmp_path), shims=2)
    assert used == SandboxUsage(
        memory_bytes=1048576,
        memory_peak_bytes=2097152,
        memory_anon_bytes=700000,
        memory_file_bytes=300000,
        swap_bytes=0,
        cpu_seconds=2.5,
        cpu_throttled_seconds=0.5,
        pids=3,
        pids_peak=8,
        io_read_bytes=11,
        io_written_bytes=22,
        pressure={"memory": parse_pressure(PSI)},
    )


def test_a_missing_file_is_unknown(tmp_path: Path) -> None:
    assert usage_of(str(tmp_path), shims=0) == SandboxUsage()
    assert usage_of(str(tmp_path / "gone"), shims=1) == SandboxUsage()


def test_pressure_with_and_without_full() -> None:
    both = parse_pressure(PSI)
    assert both.some_percent == (1.5, 0.25, 0.0)
    assert (both.some_seconds, both.full_seconds) == (2.5, 0.5)
    some = parse_pressure(PSI.splitlines()[0])
    assert some.full_percent is None
    assert some.full_seconds is None
