# SPDX-License-Identifier: Apache-2.0
"""The supervisor holds processor time by SIGSTOP and SIGCONT, and never against a suspension."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tests.conftest import unmet
from tests.contract.probes import eventually, output, path_of, printed, python, start, uid_inside
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.supervisor import SPIN, host_seconds, states, supervised

# pbkdf2_hmac lets other threads run meanwhile.
THREADS = """
import hashlib, threading, time
def work():
    while 1: hashlib.pbkdf2_hmac("sha256", b"x", b"y", 20000)
for _ in range(4): threading.Thread(target=work, daemon=True).start()
time.sleep(10)
"""
# Children whose parent throws their times away (wait(2), SIGCHLD ignored).
UNCOUNTED = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
end = time.monotonic() + 6
while time.monotonic() < end:
    if os.fork() == 0:
        until = time.process_time() + 0.15
        while time.process_time() < until: pass
        os._exit(0)
    time.sleep(0.05)
"""
daemon = daemon_fixture(supervised)


def cores(ran: Any) -> float:
    return float(ran["usage"]["cpu_seconds"] / ran["usage"]["wall_seconds"])


def at_least(ran: Any, quota: float, idle_share: float) -> None:
    """The quota was had, too, unless others left none of the host's time."""
    if idle_share > 0.1:
        assert cores(ran) >= quota * 0.95


@pytest.mark.parametrize("quota", [0.5, 1.0])
def test_four_threads_get_their_quota(daemon: Daemon, quota: float) -> None:
    if (os.cpu_count() or 1) <= quota:
        unmet(f"more than {quota:g} processors")
    made = daemon.create(limits={"cpus": quota, "memory_bytes": "128M"})
    total, idle = host_seconds()
    ran = daemon.execute(made["id"], python(THREADS))
    total, idle = host_seconds()[0] - total, host_seconds()[1] - idle
    daemon.release(made["id"])
    assert ran["status"] == "EXITED"
    assert cores(ran) <= quota * 1.05
    at_least(ran, quota, idle / total)


def test_executions_share_their_sandbox_s_quota(daemon: Daemon) -> None:
    made = daemon.create(limits={"cpus": 0.5, "memory_bytes": "128M"})
    both = [start(daemon, made, f"timeout 5 sh -c '{SPIN}'") for _ in range(2)]
    ended = [daemon.wait(one) for one in both]
    daemon.release(made["id"])
    assert sum(cores(one) for one in ended) <= 0.5 * 1.1


def test_an_execution_s_own_quota_slows_it_alone(daemon: Daemon) -> None:
    made = daemon.create(limits={"cpus": 2, "memory_bytes": "128M"})
    slow = daemon.ok(
        "POST",
        f"/v1/sandboxes/{made['id']}/executions",
        {"command": f"timeout 5 sh -c '{SPIN}'", "limits": {"cpus": 0.1}, "wait": False},
    )
    other = daemon.execute(made["id"], f"timeout 3 sh -c '{SPIN}'")
    ended = daemon.wait(slow)
    daemon.release(made["id"])
    assert cores(ended) <= 0.13
    assert ended["usage"]["cpu_throttled_seconds"] > 0
    assert other["usage"]["cpu_throttled_seconds"] == 0


def test_children_nobody_waits_for_are_counted(daemon: Daemon) -> None:
    made = daemon.create(limits={"cpus": 0.3, "memory_bytes": "128M"})
    ran = daemon.execute(made["id"], python(UNCOUNTED))
    daemon.release(made["id"])
    assert ran["usage"]["cpu_throttled_seconds"] > 0
    assert cores(ran) <= 0.3 * 1.3


def test_the_limit_of_processor_time_holds_the_sum(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "128M"})
    script = f"for i in 1 2 3 4; do timeout 20 sh -c '{SPIN}' & done; wait"
    ran = daemon.execute(made["id"], script, limits={"cpu_seconds": 1})
    daemon.release(made["id"])
    assert (ran["status"], ran["error_code"]) == (
        "CPU_TIME_EXCEEDED", "SANDBOX_CPU_TIME_LIMIT_EXCEEDED",
    )  # fmt: skip
    assert 0.9 <= ran["usage"]["cpu_seconds"] <= 1.5


@pytest.mark.usefixtures("requires_root")
def test_a_suspended_sandbox_is_never_continued(daemon: Daemon) -> None:
    made = daemon.create(limits={"cpus": 0.2, "memory_bytes": "128M"})
    uid = uid_inside(daemon, made)
    running = start(daemon, made, "while :; do echo x; done | tee /dev/null")
    printed(daemon, running, b"x")
    target = f"/v1/sandboxes/{made['id']}"
    for _ in range(3):
        daemon.ok("POST", f"{target}/suspend")
        # A signal is taken when its process gets a processor.
        eventually(lambda: set(states(uid)) == {"T"})
        deadline = time.monotonic() + 0.7
        while time.monotonic() < deadline:
            assert set(states(uid)) == {"T"}
        daemon.ok("POST", f"{target}/resume")
        size = len(output(daemon, running))
        eventually(lambda size=size: len(output(daemon, running)) > size)  # type: ignore[misc]
    daemon.wait(daemon.ok("POST", f"{path_of(running)}/kill"))
    daemon.release(made["id"])


def test_a_higher_quota_holds_for_what_runs(daemon: Daemon) -> None:
    made = daemon.create(limits={"cpus": 0.1, "memory_bytes": "128M"})
    running = start(daemon, made, f"timeout 6 sh -c '{SPIN}'")
    daemon.ok("PATCH", f"/v1/sandboxes/{made['id']}", {"limits": {"cpus": 2}})
    ended = daemon.wait(running)
    daemon.release(made["id"])
    assert ended["usage"]["cpu_throttled_seconds"] < 1
