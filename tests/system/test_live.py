# SPDX-License-Identifier: Apache-2.0
"""What changes under a running command: limits, systemd itself, suspension."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.harness import Daemon
from tests.system import host

HOLD = "kept = bytearray(b'x' * 4096) * 25600; print('held', flush=True)"
TICK = "while :; do echo tick; sleep 0.05; done"


def memory_max(unit: str) -> int:
    return int(host.attribute(unit, "memory.max"))


def test_limits_rise_and_fall_together(daemon: Daemon, sandbox: Any) -> None:
    target = f"/v1/sandboxes/{sandbox['id']}"
    running = daemon.execute(sandbox["id"], ["sleep", "1000"], wait=False)
    for size in (512 << 20, 96 << 20):
        changed = daemon.ok("PATCH", target, {"limits": {"memory_bytes": size, "pids": 33}})
        assert changed["limits"]["memory_bytes"] == size
        assert memory_max(sandbox["unit"]) == memory_max(running["unit"]) == size
        assert host.attribute(running["unit"], "pids.max") == "34"
        # A change of the scope must not take the group kill away.
        assert (host.cgroup(running["unit"]) / "job" / "memory.oom.group").read_text() == "1\n"
    shown = daemon.ok("GET", f"{target}/executions/{running['id']}")
    assert shown["limits"]["memory_bytes"] == 96 << 20


@pytest.mark.timeout(600)
def test_no_verdict_is_lost_when_a_limit_falls_below_use(
    daemon: Daemon, soak_count: Callable[[int], int]
) -> None:
    """The cgroup is over its limit with nothing left to kill: every open of the shim can fail."""
    argv = ["python3", "-c", f"import time; {HOLD}; time.sleep(1000)"]
    verdicts = []
    for _ in range(soak_count(100)):
        sandbox = daemon.create(limits={"memory_bytes": "256M"})
        running = daemon.execute(sandbox["id"], argv, wait=False)
        target = f"/v1/sandboxes/{sandbox['id']}"
        state = f"{target}/executions/{running['id']}"
        host.until(partial(_has_output, daemon, state), 60)
        daemon.ok("PATCH", target, {"limits": {"memory_bytes": "50M"}, "force": True})
        ended = daemon.wait(running)
        verdicts.append((ended["status"], ended["limit_owner"]))
        daemon.release(sandbox["id"])
    assert set(verdicts) == {("OOM_KILLED", "sandbox")}


def test_lowering_below_use_is_refused(daemon: Daemon, sandbox: Any) -> None:
    argv = ["python3", "-c", f"import time; {HOLD}; time.sleep(1000)"]
    running = daemon.execute(sandbox["id"], argv, wait=False)
    target = f"/v1/sandboxes/{sandbox['id']}"
    state = f"{target}/executions/{running['id']}"
    host.until(lambda: daemon.ok("GET", state)["stdout_bytes"], 60)
    refused = daemon.request("PATCH", target, {"limits": {"memory_bytes": "50M"}})
    assert (refused.status, refused.code) == (409, "LIMIT_BELOW_USAGE")
    assert refused.json["error"]["details"]["current"] > 100 << 20
    assert memory_max(sandbox["unit"]) == 256 << 20
    forced = daemon.request("PATCH", target, {"limits": {"memory_bytes": "50M"}, "force": True})
    assert forced.status == 200
    ended = daemon.wait(running)
    assert (ended["status"], ended["limit_owner"]) == ("OOM_KILLED", "sandbox")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("verb", ["daemon-reload", "daemon-reexec"])
def test_systemd_reloads_under_work(daemon: Daemon, sandbox: Any, verb: str) -> None:
    running = daemon.execute(sandbox["id"], TICK, wait=False)
    files = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "io.max",
             "cgroup.subtree_control", "job/memory.oom.group")  # fmt: skip
    scope = host.cgroup(running["unit"])
    before = [(scope / name).read_text() for name in files]
    subprocess.run(["systemctl", verb], check=True, timeout=120)
    # systemctl comes back before systemd does: it cannot be asked just now.
    assert daemon.execute(sandbox["id"], ["echo", "on"])["stdout"] == "on\n"
    host.until(lambda: [(scope / name).read_text() for name in files] == before, 10)
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{running['id']}"
    size = daemon.ok("GET", target)["stdout_bytes"]
    host.until(lambda: daemon.ok("GET", target)["stdout_bytes"] > size)
    assert daemon.ok("POST", f"{target}/kill", {})["status"] == "KILLED"


@pytest.mark.timeout(300)
def test_dbus_goes_away_and_comes_back(daemon: Daemon, sandbox: Any) -> None:
    running = daemon.execute(sandbox["id"], ["sleep", "1000"], wait=False)
    subprocess.run(["systemctl", "restart", "dbus.service"], check=True, timeout=120)
    deadline = time.monotonic() + 60
    while True:
        answer = daemon.request(
            "POST", f"/v1/sandboxes/{sandbox['id']}/executions", {"argv": ["echo", "back"]}
        )
        if answer.status == 200 or time.monotonic() > deadline:
            break
        assert answer.code in {"SYSTEMD_UNAVAILABLE", "OPERATION_TIMED_OUT"}
        assert answer.json["error"]["retryable"] is True
    assert answer.json["stdout"] == "back\n"
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{running['id']}"
    assert daemon.ok("GET", target)["status"] == "RUNNING"


def test_suspend_stops_output_and_kill_works(daemon: Daemon, sandbox: Any) -> None:
    running = daemon.execute(sandbox["id"], TICK, wait=False, timeout_seconds=1000)
    spool = daemon.state / "sandboxes" / sandbox["id"] / "executions" / running["id"] / "stdout"
    host.until(lambda: spool.stat().st_size)
    target = f"/v1/sandboxes/{sandbox['id']}"
    assert daemon.ok("POST", f"{target}/suspend")["state"] == "suspended"
    events = host.cgroup(running["unit"]) / "job" / "cgroup.events"
    assert "frozen 1" in events.read_text()
    cpu = host.cgroup(running["unit"]) / "job" / "cpu.stat"
    # What was in the pipe when it froze may still be copied.
    quiet = host.until(lambda: _stands_still(spool), 10)
    used = cpu.read_text().splitlines()[0]
    time.sleep(1)
    assert spool.stat().st_size == quiet
    assert cpu.read_text().splitlines()[0] == used
    assert daemon.ok("POST", f"{target}/resume")["state"] == "ready"
    host.until(lambda: spool.stat().st_size > quiet)

    daemon.ok("POST", f"{target}/suspend")
    started = time.monotonic()
    killed = daemon.ok("POST", f"{target}/executions/{running['id']}/kill", {})
    assert killed["status"] == "KILLED"
    assert time.monotonic() - started < 5
    assert daemon.ok("GET", target)["state"] == "suspended"


def _has_output(daemon: Daemon, execution: str) -> bool:
    return bool(daemon.ok("GET", execution)["stdout_bytes"])


def _stands_still(path: Any) -> int | None:
    size: int = path.stat().st_size
    time.sleep(0.2)
    return size if path.stat().st_size == size else None
