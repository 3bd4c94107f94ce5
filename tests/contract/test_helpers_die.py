# SPDX-License-Identifier: Apache-2.0
"""Spawner and shims may be killed at any moment: what that costs, and what it does not."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.leftovers import spawner
from tests.contract.probes import (
    eventually,
    path_of,
    printed,
    processes_of,
    start,
    uid_inside,
)
from tests.harness import Daemon

TICK = "while :; do echo tick; sleep 0.05; done"


def spawner_pid(daemon: Daemon) -> int:
    """The process that listens on the daemon's spawner socket, found by its command line."""
    argument = str(daemon.runtime / "spawner.sock").encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            # Shims are forks of it and have its command line.
            if argument in words and argument not in _words(parent):
                return int(entry.name)
    raise AssertionError("no spawner")


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return []


def shim_pid(daemon: Daemon, sandbox: str, execution: str) -> int:
    record = daemon.state / "sandboxes" / sandbox / "executions" / execution / "start.json"
    fields = record.read_text().replace("{", "").replace("}", "").split(",")
    return next(int(f.split(":")[1]) for f in fields if f.startswith('"pid":'))


def wait_gone(pid: int, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.usefixtures("requires_root")
def test_a_killed_spawner_is_replaced_and_missed_by_nobody(daemon: Daemon) -> None:
    sandbox = daemon.create(limits={"memory_bytes": "256M"})["id"]
    running = daemon.execute(sandbox, TICK, wait=False)
    target = f"/v1/sandboxes/{sandbox}/executions/{running['id']}"
    pid = spawner_pid(daemon)
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    size = daemon.ok("GET", target)["stdout_bytes"]
    assert daemon.execute(sandbox, ["echo", "new"])["stdout"] == "new\n"
    assert spawner_pid(daemon) != pid
    ended = daemon.ok("POST", f"{target}/kill", {})
    assert ended["status"] == "KILLED"
    assert ended["stdout_bytes"] > size
    daemon.release(sandbox)


@pytest.mark.usefixtures("requires_root")
def test_a_killed_shim_takes_its_command_along_and_is_told(daemon: Daemon) -> None:
    sandbox = daemon.create(limits={"memory_bytes": "256M"})["id"]
    uid = int(daemon.execute(sandbox, ["id", "-u"])["stdout"])
    script = "setsid sleep 1000 & sleep 1000"
    lost, other = (daemon.execute(sandbox, script, wait=False) for _ in range(2))
    os.kill(shim_pid(daemon, sandbox, lost["id"]), signal.SIGKILL)
    ended = daemon.wait(lost)
    assert (ended["status"], ended["error_code"]) == ("LOST", "EXECUTION_LOST")
    target = f"/v1/sandboxes/{sandbox}/executions/{other['id']}"
    assert daemon.ok("GET", target)["status"] == "RUNNING"
    assert daemon.execute(sandbox, ["echo", "on"])["stdout"] == "on\n"
    daemon.release(sandbox)
    assert processes_of(uid) == []


@pytest.mark.usefixtures("requires_root")
def test_what_a_lost_execution_printed_is_there(daemon: Daemon) -> None:
    sandbox = daemon.create(limits={"memory_bytes": "256M"})
    lost = start(daemon, sandbox, "echo printed; exec sleep 1000")
    printed(daemon, lost, b"printed")
    os.kill(shim_pid(daemon, sandbox["id"], lost["id"]), signal.SIGKILL)
    ended = daemon.wait(lost)
    assert (ended["status"], ended["stdout"], ended["stdout_bytes"]) == ("LOST", "printed\n", 8)
    daemon.release(sandbox["id"])


@pytest.mark.usefixtures("requires_root")
def test_a_stopped_shim_cannot_keep_its_command_from_being_killed(daemon: Daemon) -> None:
    sandbox = daemon.create(limits={"memory_bytes": "256M"})
    running = start(daemon, sandbox, "echo printed; exec sleep 1000")
    printed(daemon, running, b"printed")
    uid = uid_inside(daemon, sandbox)
    os.kill(shim_pid(daemon, sandbox["id"], running["id"]), signal.SIGSTOP)
    ended = daemon.ok("POST", f"{path_of(running)}/kill", {})
    assert (ended["status"], ended["error_code"]) == ("KILLED", "KILLED_BY_CALLER")
    assert ended["stdout"] == "printed\n"
    eventually(lambda: not processes_of(uid))
    daemon.release(sandbox["id"])


@pytest.mark.usefixtures("requires_root")
def test_a_stopped_spawner_is_replaced_before_it_costs_anybody_much(daemon: Daemon) -> None:
    sandbox = daemon.create(limits={"memory_bytes": "256M"})["id"]
    pid = spawner_pid(daemon)
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(4) as pool:
        ran = list(pool.map(lambda _: daemon.execute(sandbox, ["echo", "new"]), range(4)))
    assert [one["stdout"] for one in ran] == ["new\n"] * 4
    wait_gone(pid)
    daemon.release(sandbox)


@pytest.mark.usefixtures("requires_root")
def test_a_stopped_spawner_is_found_before_anybody_needs_it(daemon: Daemon) -> None:
    pid = spawner_pid(daemon)
    os.kill(pid, signal.SIGSTOP)
    wait_gone(pid, 20)
    eventually(lambda: spawner(daemon) not in (None, pid))


@pytest.mark.usefixtures("requires_root")
def test_a_daemon_starts_beside_a_stopped_spawner(daemon: Daemon) -> None:
    sandbox = daemon.create(limits={"memory_bytes": "256M"})["id"]
    running = daemon.execute(sandbox, TICK, wait=False)
    daemon.kill()
    os.kill(spawner_pid(daemon), signal.SIGSTOP)
    daemon.start()
    assert daemon.execute(sandbox, ["echo", "new"])["stdout"] == "new\n"
    target = f"/v1/sandboxes/{sandbox}/executions/{running['id']}"
    assert daemon.ok("POST", f"{target}/kill", {})["status"] == "KILLED"
    daemon.release(sandbox)
