# SPDX-License-Identifier: Apache-2.0
"""Whatever a sandbox's processes do to get away, the supervisor and the shim reach them."""

from __future__ import annotations

import time

import pytest

from tests.contract.probes import (
    eventually,
    path_of,
    printed,
    processes_of,
    python,
    start,
    uid_inside,
)
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.supervisor import supervised

pytestmark = pytest.mark.usefixtures("requires_root")

BOMB = "f() { f | f & }; f; echo on; sleep 300"
# Sessions of their own, a new number every few milliseconds, deaf to all signals.
HOPPERS = """
import os, signal, time
for number in (1, 2, 3, 15, 10, 12): signal.signal(number, signal.SIG_IGN)
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        while 1:
            if os.fork(): os._exit(0)
            time.sleep(0.002)
print("on", flush=True)
time.sleep(300)
"""
STOPPED = """
import os, signal, time
for _ in range(30):
    if os.fork() == 0:
        os.setsid(); os.kill(os.getpid(), signal.SIGSTOP)
print("on", flush=True)
time.sleep(300)
"""
IGNORING = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(30):
    if os.fork() == 0:
        for _ in range(3):
            if os.fork() == 0: break
        time.sleep(300)
print("on", flush=True)
time.sleep(300)
"""
EATER = """
import os
for _ in range(8):
    if os.fork() == 0: break
held = []
while 1: held.append(bytearray(b"x" * (1 << 20)))
"""
daemon = daemon_fixture(supervised)


def answer_seconds(daemon: Daemon, sandbox: str, count: int = 9) -> float:
    """The median time of a command that does nothing."""
    times = []
    for _ in range(count):
        began = time.monotonic()
        assert daemon.execute(sandbox, ["true"])["exit_code"] == 0
        times.append(time.monotonic() - began)
    return sorted(times)[count // 2]


def test_a_fork_bomb_s_neighbour_answers(daemon: Daemon) -> None:
    neighbour = daemon.create(limits={"memory_bytes": "128M"})
    idle = answer_seconds(daemon, neighbour["id"])
    made = daemon.create(limits={"pids": 256, "cpus": 1, "memory_bytes": "256M"})
    uid = uid_inside(daemon, made)
    bomb = start(daemon, made, BOMB)
    eventually(lambda: len(processes_of(uid)) > 100)
    busy = answer_seconds(daemon, neighbour["id"])
    daemon.ok("POST", f"{path_of(bomb)}/kill")
    daemon.wait(bomb)
    assert daemon.execute(made["id"], "true | cat; echo on")["stdout"] == "on\n"
    daemon.release(made["id"])
    daemon.release(neighbour["id"])
    assert busy <= max(3 * idle, 0.1)


@pytest.mark.parametrize("code", [HOPPERS, STOPPED, IGNORING], ids=["hop", "stopped", "ignoring"])
def test_a_kill_reaches_all(daemon: Daemon, code: str) -> None:
    made = daemon.create(limits={"pids": 256, "cpus": 1, "memory_bytes": "256M"})
    uid = uid_inside(daemon, made)
    running = start(daemon, made, python(code))
    printed(daemon, running, b"on")
    daemon.ok("POST", f"{path_of(running)}/kill")
    assert daemon.wait(running)["status"] == "KILLED"
    assert processes_of(uid) == []
    assert daemon.execute(made["id"], ["echo", "on"])["stdout"] == "on\n"
    daemon.release(made["id"])


def test_a_killed_bomb_of_256_is_gone_at_once(daemon: Daemon) -> None:
    made = daemon.create(limits={"pids": 256, "memory_bytes": "512M"})
    uid = uid_inside(daemon, made)
    running = start(daemon, made, BOMB)
    eventually(lambda: len(processes_of(uid)) > 200)
    began = time.monotonic()
    daemon.ok("POST", f"{path_of(running)}/kill")
    took = time.monotonic() - began
    left = processes_of(uid)
    daemon.release(made["id"])
    assert left == []
    assert took < 1.0


@pytest.mark.parametrize("code", [HOPPERS, IGNORING], ids=["hop", "ignoring"])
def test_memory_of_those_who_hide_is_held(daemon: Daemon, code: str) -> None:
    made = daemon.create(limits={"pids": 256, "memory_bytes": "256M"})
    hiding = code.replace("time.sleep(300)\n", EATER.replace("import os", ""), 1)
    hiding = hiding if code is not HOPPERS else code.replace("time.sleep(300)\n", EATER)
    ran = daemon.execute(made["id"], python(hiding), timeout_seconds=50)
    daemon.release(made["id"])
    assert ran["status"] == "OOM_KILLED", ran
