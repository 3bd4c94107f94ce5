# SPDX-License-Identifier: Apache-2.0
"""The rendered units on the real systemd: who may use them, what is protected, what survives."""

from __future__ import annotations

import grp
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import unmet
from tests.contract.probes import path_of, printed, start
from tests.harness import ROOT
from tests.system import host
from tests.system.installed import (
    GROUP,
    LIMITS,
    SERVICES,
    START_SECONDS,
    WATCHDOG_SECONDS,
    Installed,
    installed,
    render,
    run,
)

MIB = 1 << 20
NOBODY = 65534
CACHED_BYTES = 32 * MIB
COUNT = "n=0; while [ $n -lt 60 ]; do echo $n; n=$((n + 1)); sleep 0.1; done; exit 5"
WHOLE = "".join(f"{n}\n" for n in range(60))
# The highest exposure of each service (docs/units.md says what it is made of).
EXPOSURE = {"sandboxd.service": 34, "sandboxd-supervisor.service": 31,
            "sandboxd-spawner.service": 90}  # fmt: skip

pytestmark = [
    pytest.mark.usefixtures("requires_root", "requires_systemd"), pytest.mark.timeout(300)
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return render(tmp_path_factory.mktemp("rendered"))


@pytest.fixture(scope="module")
def service(
    requires_root: None, requires_systemd: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    with installed(tmp_path_factory.mktemp("units"), SANDBOX_CGROUP_MODE="required") as service:
        yield service


@pytest.fixture
def sandbox(service: Installed) -> Iterator[Any]:
    made = service.create(limits={"memory_bytes": "128M"})
    yield made
    service.release(made["id"])


def test_systemd_finds_no_fault(files: list[Path]) -> None:
    units = [str(path) for path in files if path.suffix in (".service", ".socket", ".slice")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True, text=True, timeout=START_SECONDS,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", SERVICES)
def test_no_more_is_exposed_than_is_accounted_for(files: list[Path], name: str) -> None:
    path = next(path for path in files if path.name == name)
    run("systemd-analyze", "security", "--offline=yes", "--no-pager",
        f"--threshold={EXPOSURE[name]}", str(path))  # fmt: skip


def ctl(*arguments: str, groups: list[int]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandboxd.ctl.main", *arguments], cwd=ROOT,
        capture_output=True, text=True, timeout=START_SECONDS,
        user=NOBODY, group=NOBODY, extra_groups=groups,
    )  # fmt: skip


def test_members_of_the_group_run_commands_and_others_do_not(service: Installed) -> None:
    members = [grp.getgrnam(GROUP).gr_gid]
    ran = ctl("run", "--", "sh", "-c", "echo $HOME; exit 3", groups=members)
    assert (ran.returncode, ran.stdout) == (3, "/home/sandbox\n"), ran.stderr
    refused = ctl("run", "--", "true", groups=[])
    assert refused.returncode == 125
    assert "permission denied" in refused.stderr


def test_files_and_io_limits_work_behind_the_daemon_s_walls(
    service: Installed, sandbox: Any
) -> None:
    path = f"/v1/sandboxes/{sandbox['id']}/files/new/data"
    assert service.request("PUT", f"{path}?parents=true", b"x" * MIB).status in (200, 201, 204)
    assert service.request("GET", path).body == b"x" * MIB
    ran = service.execute(sandbox["id"], ["stat", "-c", "%u %s", "new/data"])
    uid, size = ran["stdout"].split()
    assert (int(uid) in range(65536, 100_000), int(size)) == (True, MIB)
    told = service.ok("GET", "/v1/host")
    assert told["missing"] == []
    assert sandbox["enforcement"]["io_read_bytes_per_second"]["by"] == "kernel"


def traits(pid: int) -> dict[str, str]:
    """What a process hands on to its children (credentials(7), namespaces(7), seccomp(2))."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    kept = {name: status[name].strip() for name in ("NoNewPrivs", "Seccomp", "CapInh", "CapAmb")}
    spaces = {name: os.readlink(f"/proc/{pid}/ns/{name}")
              for name in ("cgroup", "ipc", "mnt", "net", "user", "uts")}  # fmt: skip
    personality = Path(f"/proc/{pid}/personality").read_text().strip()
    return {**kept, **spaces, "personality": personality}


def test_shims_inherit_nothing_from_the_units(service: Installed, sandbox: Any) -> None:
    running = start(service, sandbox, "echo up; exec sleep 300")
    printed(service, running, b"up")
    shim = int((host.cgroup(running["unit"]) / "shim" / "cgroup.procs").read_text().split()[0])
    init = traits(1)
    assert traits(service.pid("sandboxd-spawner.service")) == init
    assert traits(shim) == init
    walled = traits(service.pid("sandboxd.service"))
    assert (walled["NoNewPrivs"], walled["Seccomp"]) == ("1", "2")
    assert {name for name in init if walled[name] != init[name]} >= {"mnt", "net"}


def test_the_limit_on_all_is_kept_over_a_reload(service: Installed, sandbox: Any) -> None:
    capacity = service.ok("GET", "/v1/host")["capacity"]
    told = re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())
    assert told is not None
    total = capacity["budget_bytes"] + capacity["reserve_bytes"]
    assert total == int(told[1]) * 1024
    for _ in range(2):
        limit = host.attribute("sandboxd.slice", "memory.max")
        assert int(limit) == capacity["budget_bytes"] // 4096 * 4096
        assert LIMITS.is_dir()
        run("systemctl", "daemon-reload")


def test_the_daemon_s_memory_is_not_reclaimed(service: Installed, sandbox: Any) -> None:
    reclaim = host.CGROUPS / "memory.reclaim"
    if not reclaim.exists():
        unmet("memory.reclaim (Linux 5.19)")
    names = (SERVICES[0], SERVICES[1])
    assert service.ok("GET", "/healthz")
    for unit in ("sandboxd_daemon.slice", *names):
        assert int(host.attribute(unit, "memory.min")) > 0
    # The page cache of what it writes counts for the daemon, and is the first to be taken.
    written = b"x" * CACHED_BYTES
    path = f"/v1/sandboxes/{sandbox['id']}/files/data"
    assert service.request("PUT", path, written).status in (200, 201, 204)
    beside = Path("/var/lib/sbxtest-cached")
    run("systemd-run", "--quiet", "--collect", "--unit=sbxtest-cached.service", "--", "sh", "-c",
        f"head -c {CACHED_BYTES} /dev/zero > {beside}; exec sleep 300")  # fmt: skip
    try:
        host.until(lambda: beside.exists() and beside.stat().st_size == CACHED_BYTES)
        os.sync()
        before = {unit: memory(unit) for unit in names}
        assert before[SERVICES[0]] > CACHED_BYTES
        assert memory("sbxtest-cached.service") > CACHED_BYTES

        def is_taken() -> bool:
            squeeze(reclaim)
            return memory("sbxtest-cached.service") < CACHED_BYTES // 4

        host.until(is_taken)
        for unit in names:
            assert memory(unit) > 0.9 * before[unit], unit
    finally:
        run("systemctl", "stop", "sbxtest-cached.service")
        beside.unlink(missing_ok=True)


def memory(unit: str) -> int:
    return int(host.attribute(unit, "memory.current"))


def squeeze(reclaim: Path) -> None:
    """Have the kernel take pages back as if memory were short (cgroup-v2.rst, memory.reclaim)."""
    try:
        reclaim.write_text("64M")
    except BlockingIOError:
        # It found less than that.
        return


def test_the_watchdog_is_fed(service: Installed) -> None:
    assert service.ok("GET", "/healthz")
    first = host.show(SERVICES[0], "WatchdogUSec", "WatchdogTimestampMonotonic")
    assert first["WatchdogUSec"] == f"{WATCHDOG_SECONDS}s"

    def is_fed() -> bool:
        name = "WatchdogTimestampMonotonic"
        return int(host.show(SERVICES[0], name)[name]) > int(first[name]) > 0

    host.until(is_fed)


def test_work_does_not_notice(
    service: Installed, sandbox: Any, soak_count: Callable[[int], int]
) -> None:
    asleep = start(service, sandbox, "echo up; exec sleep 300")
    printed(service, asleep, b"up")
    for way in ("restart", "hang")[: soak_count(10)]:
        counting = start(service, sandbox, COUNT)
        printed(service, counting, b"0\n")
        daemon, spawner = (service.pid(unit) for unit in SERVICES[:2])
        if way == "restart":
            run("systemctl", "restart", *SERVICES[:2])
            service.await_another(SERVICES[1], spawner)
        else:
            os.kill(daemon, signal.SIGSTOP)
        service.await_another(SERVICES[0], daemon)
        counted = service.wait(counting)
        assert (counted["status"], counted["exit_code"]) == ("EXITED", 5)
        assert counted["stdout"] == WHOLE
        assert service.ok("GET", path_of(asleep))["status"] == "RUNNING"
        assert service.execute(sandbox["id"], ["echo", "on"])["stdout"] == "on\n"
    ended = service.wait(service.ok("POST", f"{path_of(asleep)}/kill", {}))
    assert (ended["status"], ended["error_code"]) == ("KILLED", "KILLED_BY_CALLER")
