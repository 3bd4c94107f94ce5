# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.cgroup import limits

RIGHT = {
    "memory.max": "268435456\n",
    "memory.swap.max": "0\n",
    "pids.max": "65\n",
    "cpu.max": "150000 100000\n",
    "cpu.weight": "250\n",
    "io.max": "254:0 rbps=5000000 wbps=3000000 riops=max wiops=max\n",
}
ASKED = {"memory_bytes": 256 << 20, "cpus": 1.5, "cpu_weight": 250, "pids": 65,
         "io_read_bytes_per_second": 5_000_000,
         "io_write_bytes_per_second": 3_000_000}  # fmt: skip


def cgroup(directory: Path, **changed: str | None) -> str:
    for name, text in {**RIGHT, **{k.replace("_", "."): v for k, v in changed.items()}}.items():
        if text is not None:
            (directory / name).write_text(text)
    return str(directory)


def test_all_in_force(tmp_path: Path) -> None:
    assert limits.mismatches(cgroup(tmp_path), ASKED) == []


def test_only_what_was_asked_for_is_compared(tmp_path: Path) -> None:
    directory = cgroup(tmp_path, cpu_max="max 100000\n", pids_max="max\n", io_max=None)
    assert limits.mismatches(directory, {"memory_bytes": 256 << 20}) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"memory_max": "max\n"}, "memory.max says 'max', asked for 268435456 bytes"),
        ({"memory_max": "268431360\n"}, "memory.max says '268431360', asked for 268435456 bytes"),
        ({"memory_max": None}, "memory.max is missing, asked for 268435456 bytes"),
        ({"memory_swap_max": "max\n"}, "memory.swap.max says 'max', asked for 0 bytes"),
        ({"pids_max": "max\n"}, "pids.max says 'max', asked for 65 tasks"),
        ({"cpu_max": "max 100000\n"}, "cpu.max says 'max 100000', asked for 1.5 cores"),
        ({"cpu_max": "100000 100000\n"}, "cpu.max says '100000 100000', asked for 1.5 cores"),
        ({"cpu_weight": "100\n"}, "cpu.weight says '100', asked for 250"),
        ({"cpu_weight": None}, "cpu.weight is missing, asked for 250"),
        ({"cpu_max": None}, "cpu.max is missing, asked for 1.5 cores"),
    ],
)
def test_each_difference_has_its_words(
    tmp_path: Path, changed: dict[str, str | None], words: str
) -> None:
    assert limits.mismatches(cgroup(tmp_path, **changed), ASKED) == [words]


def test_io_limits_that_reached_no_device(tmp_path: Path) -> None:
    assert limits.mismatches(cgroup(tmp_path, io_max="\n"), ASKED) == [
        "io.max is empty, asked for rbps=5000000 for some device",
        "io.max is empty, asked for wbps=3000000 for some device",
    ]


def test_io_limits_of_the_second_device(tmp_path: Path) -> None:
    lines = "8:0 rbps=max wbps=max riops=10 wiops=max\n" + RIGHT["io.max"]
    assert limits.mismatches(cgroup(tmp_path, io_max=lines), ASKED) == []


def test_memory_is_whole_pages(tmp_path: Path) -> None:
    asked = {**ASKED, "memory_bytes": (256 << 20) + 4095}
    assert limits.mismatches(cgroup(tmp_path), asked) == []


def test_kernel_without_swap(tmp_path: Path) -> None:
    assert limits.mismatches(cgroup(tmp_path, memory_swap_max=None), ASKED) == []


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("1000 100000", 0.01),
        ("33333 100000", 1 / 3),
        ("3000 300000", 0.01),
        ("819200000 100000", 8192.0),
    ],
)
def test_cpu_by_ratio(tmp_path: Path, text: str, cpus: float) -> None:
    assert limits.mismatches(cgroup(tmp_path, cpu_max=text), {**ASKED, "cpus": cpus}) == []


def test_removed_cgroup(tmp_path: Path) -> None:
    words = limits.mismatches(str(tmp_path / "gone"), ASKED)
    assert [text.split()[0] for text in words] == [
        "memory.max", "cpu.max", "cpu.weight", "pids.max", "io.max", "io.max",
    ]  # fmt: skip
