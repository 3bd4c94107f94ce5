# SPDX-License-Identifier: Apache-2.0
"""sandboxd as a service and sandboxctl without one, on the real systemd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness import ROOT, request
from tests.system import host

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def sandboxctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from sandboxd.ctl.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def private_directories() -> set[str]:
    return {
        str(path) for parent in ("/var/lib", "/run") for path in Path(parent).glob("sandboxd-run-*")
    }


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("requires_systemd")
def test_run_takes_the_kernels_limits_and_leaves_nothing() -> None:
    before = host.sandboxd_units(), private_directories()
    show = "import sys; print(open('/proc/self/cgroup').read()); sys.exit(7)"
    ran = sandboxctl("run", "-v", "--memory", "64M", "--cpus", "1", "--", "python3", "-c", show)
    assert ran.returncode == 7
    assert re.search(r"sandboxd_[a-z2-7]{12}\.slice/.*\.scope/job", ran.stdout)
    assert "systemd scheme" in ran.stderr
    assert re.search(r"memory_bytes +64 MiB +kernel", ran.stderr)
    bomb = sandboxctl("run", "--memory", "64M", "--", "python3", "-c", "x = bytearray(1 << 28)")
    assert bomb.returncode == 137
    assert "\n  limits held by the kernel" in bomb.stderr
    assert "OOM_KILLED" in bomb.stderr
    assert (host.sandboxd_units(), private_directories()) == before


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("requires_systemd")
def test_private_daemons_beside_each_other() -> None:
    before = host.sandboxd_units(), private_directories()

    def run(number: int) -> tuple[int, str]:
        script = f"sleep {number}; cat /proc/self/cgroup; exit {number}"
        ran = sandboxctl("run", "-q", "--memory", "64M", "--", "sh", "-c", script)
        return ran.returncode, ran.stdout

    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(run, (1, 2, 3)))
    assert [code for code, _ in ends] == [1, 2, 3]
    assert len({text.split("/")[1] for _, text in ends}) == 3
    assert (host.sandboxd_units(), private_directories()) == before


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("requires_systemd")
def test_doctor_finds_every_sum_held_by_the_kernel() -> None:
    seen = sandboxctl("doctor")
    assert re.search(r"^scheme: systemd", seen.stdout, re.MULTILINE)
    # The disk, too: the machine's root file system keeps user quotas.
    for name in ("memory_bytes", "cpus", "pids", "io_read_bytes_per_second", "disk_bytes"):
        assert re.search(rf"^{name} .* kernel ", seen.stdout, re.MULTILINE)
    for level in ("basic", "standard", "strict"):
        assert re.search(rf"^  {level}: available", seen.stdout, re.MULTILINE)
    assert seen.returncode == 0


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("requires_systemd")
def test_service_tells_its_state_and_takes_the_socket_it_is_given() -> None:
    """Type=notify with a watchdog, socket activation, by pystemd as Debian ships it."""
    runtime, state = tempfile.mkdtemp(dir="/run"), tempfile.mkdtemp(dir="/var/lib")
    Path(state).chmod(0o711)
    before = host.sandboxd_units()
    path, unit = f"{runtime}/given.sock", "sdtest-service"
    command = [
        "systemd-run", "--quiet", "--collect", f"--unit={unit}",
        "--socket-property=SocketMode=0600",
        f"--socket-property=ListenStream={path}", "--property=Type=notify",
        "--property=WatchdogSec=20", f"--setenv=PYTHONPATH={ROOT}", "--",
        sys.executable, "-m", "sandboxd", "--state-dir", state, "--runtime-dir", runtime,
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    try:
        assert request(path, "GET", "/readyz").status == 200
        shown = host.show(f"{unit}.service", "ActiveState", "StatusText", "WatchdogTimestamp")
        assert shown["ActiveState"] == "active"
        assert shown["StatusText"].startswith("systemd scheme: ")
        assert shown["WatchdogTimestamp"] != ""
        ran = request(path, "POST", "/v1/run", {"command": "exit 3"})
        assert ran.json["exit_code"] == 3
    finally:
        units = [f"{unit}.socket", f"{unit}.service"]
        subprocess.run(["systemctl", "stop", *units], check=True, timeout=120)
        subprocess.run(
            [sys.executable, "-m", "sandboxd", "--stop-all", "--state-dir", state,
             "--runtime-dir", runtime],
            env=ENVIRONMENT, check=True, timeout=120,
        )  # fmt: skip
        shutil.rmtree(runtime)
        shutil.rmtree(state)
    assert host.sandboxd_units() == before
