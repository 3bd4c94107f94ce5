# SPDX-License-Identifier: Apache-2.0
"""The limits asked for are in systemd and in the kernel; after a release nothing is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Daemon
from tests.system import host

LIMITS = {
    "memory_bytes": 192 << 20,
    "cpus": 0.75,
    "cpu_weight": 60,
    "pids": 48,
    "io_read_bytes_per_second": 30 << 20,
    "io_write_bytes_per_second": 20 << 20,
}
PROPERTIES = (
    "MemoryMax", "MemorySwapMax", "CPUQuotaPerSecUSec", "CPUWeight", "TasksMax",
    "IOReadBandwidthMax", "IOWriteBandwidthMax",
)  # fmt: skip


def disk_of(path: Path) -> str:
    """The disk that a file system is on, as the host's own tool says."""
    source = subprocess.run(
        ["findmnt", "--noheadings", "--output", "SOURCE", "--target", str(path)],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.strip()  # fmt: skip
    return os.path.realpath(source)


def assert_limits(unit: str, state: Path) -> None:
    shown = host.show(unit, *PROPERTIES)
    assert shown["MemoryMax"] == str(192 << 20)
    assert shown["MemorySwapMax"] == "0"
    assert shown["CPUQuotaPerSecUSec"] == "750ms"
    assert shown["CPUWeight"] == host.attribute(unit, "cpu.weight") == "60"
    # One more for the shim, which lives among them.
    assert shown["TasksMax"] == "49"
    disk = disk_of(state)
    assert shown["IOReadBandwidthMax"] == f"{disk} {30 << 20}"
    assert shown["IOWriteBandwidthMax"] == f"{disk} {20 << 20}"
    assert host.attribute(unit, "memory.max") == str(192 << 20)
    assert host.attribute(unit, "memory.swap.max") == "0"
    assert host.attribute(unit, "pids.max") == "49"
    quota, period = map(int, host.attribute(unit, "cpu.max").split())
    assert quota / period == pytest.approx(0.75, rel=0.01)
    number = os.stat(disk).st_rdev
    line = f"{os.major(number)}:{os.minor(number)} rbps={30 << 20} wbps={20 << 20}"
    assert line in host.attribute(unit, "io.max")


@pytest.mark.parametrize("sandbox", [LIMITS], indirect=True)
def test_systemd_and_the_kernel_show_what_was_asked(daemon: Daemon, sandbox: Any) -> None:
    execution = daemon.execute(sandbox["id"], ["sleep", "1000"], wait=False)
    assert_limits(sandbox["unit"], daemon.state)
    assert_limits(execution["unit"], daemon.state)
    # What groups the sandbox weighs as much, since the kernel compares siblings alone.
    bucket = sandbox["unit"].rpartition("-")[0] + ".slice"
    assert host.attribute(bucket, "cpu.weight") == "60"
    scope = host.show(execution["unit"], "OOMPolicy", "Delegate", "Slice")
    assert scope == {"OOMPolicy": "continue", "Delegate": "yes", "Slice": sandbox["unit"]}


def test_aggregate_is_the_budget(daemon: Daemon, sandbox: Any) -> None:
    budget = daemon.ok("GET", "/v1/host")["capacity"]["budget_bytes"]
    parent = sandbox["unit"].split("-")[0] + ".slice"
    page = 4096
    assert int(host.attribute(parent, "memory.max")) == budget // page * page


def test_every_answer_says_that_the_kernel_enforces(daemon: Daemon, sandbox: Any) -> None:
    for name in LIMITS:
        assert sandbox["enforcement"][name]["by"] == "kernel", name
    control = daemon.ok("GET", "/healthz")["resource_control"]
    assert control["scheme"] == "systemd"
    for resource in ("memory", "cpu", "pids", "io"):
        assert control[f"sandbox_{resource}_quota"] is True


def test_release_leaves_nothing(daemon: Daemon) -> None:
    before = host.sandboxd_units()
    mounts = Path("/proc/self/mountinfo").read_text()
    sandbox = daemon.create(limits={"memory_bytes": "64M"})
    uid = int(daemon.execute(sandbox["id"], ["id", "-u"])["stdout"])
    script = "setsid sleep 1000 & touch /tmp/a /var/tmp/b ~/c /dev/shm/d; ipcmk -M 4096; sleep 1000"
    running = daemon.execute(sandbox["id"], script, wait=False)
    directory = host.cgroup(sandbox["unit"])
    assert host.processes_of(uid)
    assert directory.is_dir()

    daemon.release(sandbox["id"])

    assert daemon.wait(running)["error_code"] == "SANDBOX_RELEASED"
    assert host.sandboxd_units() == before
    assert not directory.exists()
    assert host.processes_of(uid) == []
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not Path(f"/run/sandboxd-uids/{uid}").exists()
    assert not (daemon.state / "sandboxes" / sandbox["id"] / "home").exists()
    assert not (daemon.state / "sandboxes" / sandbox["id"] / "tmp").exists()
    found = subprocess.run(
        ["find", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "-uid", str(uid)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout == ""
    assert str(uid) not in Path("/proc/sysvipc/shm").read_text()
