# SPDX-License-Identifier: Apache-2.0
"""The whole property lists, as systemd gets them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dbus_fast import Message

from sandboxd.core.model import Limits
from sandboxd.systemd import properties
from sandboxd.systemd.bus import pack
from sandboxd.systemd.properties import Features, Property

LIMITS = Limits(
    memory_bytes=256 << 20,
    cpus=1.5,
    pids=64,
    io_read_bytes_per_second=5_000_000,
    io_write_bytes_per_second=3_000_000,
    disk_bytes=1 << 30,
    timeout_seconds=60.0,
    cpu_seconds=None,
    max_output_bytes=1 << 20,
    open_files=64,
    file_size_bytes=1 << 30,
)
ACCOUNTING = [
    ("MemoryAccounting", "b", True),
    ("TasksAccounting", "b", True),
    ("CPUAccounting", "b", True),
    ("IOAccounting", "b", True),
]
HELD = [
    ("MemoryMax", "t", 268435456),
    ("MemorySwapMax", "t", 0),
    ("CPUQuotaPerSecUSec", "t", 1500000),
    ("CPUWeight", "t", 100),
    ("TasksMax", "t", 65),
]
IO = [
    ("IOReadBandwidthMax", "a(st)", [["/var/lib/sandboxd", 5000000]]),
    ("IOWriteBandwidthMax", "a(st)", [["/var/lib/sandboxd", 3000000]]),
]
SLICE = "sandboxd-3f-abcdefghijkl.slice"


def scope(version: int, io_path: str | None = "/var/lib/sandboxd") -> list[Property]:
    return properties.execution_scope(
        LIMITS, slice_name=SLICE, pid=4711, tasks=65, io_path=io_path, description="about",
        features=Features.of_version(version),
    )  # fmt: skip


def test_scope_on_the_tested_version() -> None:
    assert scope(257) == [
        ("PIDFDs", "ah", [0]),
        ("Slice", "s", SLICE),
        ("Description", "s", "about"),
        ("KillSignal", "i", 9),
        ("TimeoutStopUSec", "t", 5000000),
        ("CollectMode", "s", "inactive-or-failed"),
        ("Delegate", "b", True),
        *ACCOUNTING,
        *HELD,
        *IO,
        ("OOMPolicy", "s", "continue"),
    ]


def test_scope_on_debian_12() -> None:
    names = {name: value for name, _, value in scope(252)}
    assert names["PIDs"] == [4711]
    assert "PIDFDs" not in names
    assert "OOMPolicy" not in names


def test_scope_without_a_device_has_no_io_limits() -> None:
    assert [p for p in scope(257, io_path=None) if p.name.startswith("IO")] == [ACCOUNTING[3]]


def test_sandbox_slice() -> None:
    made = properties.sandbox_slice(
        LIMITS, tasks=65, io_path="/var/lib/sandboxd", description="about"
    )
    assert made == [("Description", "s", "about"), *ACCOUNTING, *HELD, *IO]


def test_parent_slice() -> None:
    assert properties.parent_slice(1 << 30, 7000, "about") == [
        ("Description", "s", "about"),
        *ACCOUNTING,
        ("MemoryMax", "t", 1073741824),
        ("MemorySwapMax", "t", 0),
        ("TasksMax", "t", 7000),
    ]


def test_notify_service() -> None:
    made = properties.notify_service(["/usr/bin/python3", "-I"], description="about")
    assert made == [
        ("Description", "s", "about"),
        ("Type", "s", "notify"),
        ("NotifyAccess", "s", "main"),
        ("KillMode", "s", "process"),
        ("OOMScoreAdjust", "i", -900),
        ("OOMPolicy", "s", "continue"),
        ("CollectMode", "s", "inactive-or-failed"),
        ("Restart", "s", "on-failure"),
        ("StartLimitIntervalUSec", "t", 0),
        ("TasksMax", "t", 18446744073709551615),
        ("ExecStart", "a(sasb)", [["/usr/bin/python3", ["/usr/bin/python3", "-I"], False]]),
    ]


@pytest.mark.parametrize(("cpus", "usec"), [(0.01, 10000), (1, 1000000), (1 / 3, 333333)])
def test_cpu_quota_in_microseconds(cpus: float, usec: int) -> None:
    limits = replace(LIMITS, cpus=cpus)
    made = properties.limit_properties(limits, tasks=1, io_path=None)
    assert Property("CPUQuotaPerSecUSec", "t", usec) in made


def test_signatures_fit_the_values() -> None:
    service = properties.notify_service(["/bin/true"], description="d")
    body = ["x.scope", "fail", pack([*scope(257), *scope(252), *service]), []]
    Message(
        destination="a.b", path="/", member="M", signature="ssa(sv)a(sa(sv))", body=body, serial=1
    )._marshall(False)
