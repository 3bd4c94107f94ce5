# SPDX-License-Identifier: Apache-2.0
"""Suspend freezes everything and loses nothing; resume goes on from there."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import (
    eventually,
    executions,
    output,
    path_of,
    printed,
    refused,
    start,
)
from tests.harness import Daemon

TICK = "n=0; while :; do n=$((n + 1)); echo $n; sleep 0.02; done"


def suspend(daemon: Daemon, sandbox: Any) -> None:
    answer = daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/suspend")
    assert answer["state"] == "suspended"


def resume(daemon: Daemon, sandbox: Any) -> None:
    answer = daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/resume")
    assert answer["state"] == "ready"


def stays(daemon: Daemon, running: Any, seconds: float) -> int:
    """The size of its output, which must not change for this long."""
    # What was printed before the freeze may still be on its way.
    eventually(lambda: output(daemon, running) == output(daemon, running))
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        output(daemon, running)
    size = len(output(daemon, running))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert len(output(daemon, running)) == size
        time.sleep(0.05)
    return size


def test_output_stops_and_goes_on(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, TICK)
    printed(daemon, running, b"5\n")
    suspend(daemon, sandbox)
    size = stays(daemon, running, 0.7)
    assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
    resume(daemon, sandbox)
    eventually(lambda: len(output(daemon, running)) > size)
    lines = output(daemon, running).decode().split()
    assert lines == [str(n + 1) for n in range(len(lines))]


def test_both_verbs_are_the_same_the_second_time(daemon: Daemon, sandbox: Any) -> None:
    for verb in (suspend, suspend, resume, resume):
        verb(daemon, sandbox)
    assert daemon.execute(sandbox["id"], ["true"])["exit_code"] == 0


def test_a_suspended_sandbox_takes_no_new_executions(daemon: Daemon, sandbox: Any) -> None:
    suspend(daemon, sandbox)
    answer = daemon.request("POST", executions(sandbox), {"argv": ["true"]})
    refused(answer, 409, "SANDBOX_SUSPENDED")
    assert daemon.ok("GET", executions(sandbox))["executions"] == []
    assert daemon.ok("GET", f"/v1/sandboxes/{sandbox['id']}")["state"] == "suspended"
    resume(daemon, sandbox)
    assert daemon.execute(sandbox["id"], ["true"])["exit_code"] == 0


def test_timers_stand_still(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo on; exec sleep 300", timeout_seconds=2)
    printed(daemon, running, b"on")
    suspend(daemon, sandbox)
    still = daemon.ok("GET", f"{path_of(running)}?wait=2.5")
    assert still["status"] == "RUNNING"
    resume(daemon, sandbox)
    began = time.monotonic()
    assert daemon.wait(running)["status"] == "TIMED_OUT"
    assert 0.3 < time.monotonic() - began < 6


@pytest.mark.parametrize("body", [{}, {"grace_seconds": 0.2}])
def test_kill_works_on_a_suspended_sandbox(daemon: Daemon, sandbox: Any, body: Any) -> None:
    running = start(daemon, sandbox, "echo on; sleep 300 & sleep 300")
    printed(daemon, running, b"on")
    suspend(daemon, sandbox)
    began = time.monotonic()
    daemon.ok("POST", f"{path_of(running)}/kill", body)
    ended = daemon.wait(running)
    assert (ended["status"], ended["error_code"]) == ("KILLED", "KILLED_BY_CALLER")
    assert time.monotonic() - began < 5
    assert daemon.ok("GET", f"/v1/sandboxes/{sandbox['id']}")["state"] == "suspended"


def test_release_works_on_a_suspended_sandbox(daemon: Daemon) -> None:
    made = daemon.create()
    running = start(daemon, made, "echo on; exec sleep 300")
    printed(daemon, running, b"on")
    suspend(daemon, made)
    daemon.release(made["id"])
    assert daemon.wait(running)["error_code"] == "SANDBOX_RELEASED"


def test_a_program_that_stopped_itself_stays_stopped(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo one; kill -STOP $$; echo two; exec sleep 300")
    printed(daemon, running, b"one")
    suspend(daemon, sandbox)
    resume(daemon, sandbox)
    daemon.ok("POST", f"{path_of(running)}/kill", {"signal": "CONT"})
    assert printed(daemon, running, b"two") == b"one\ntwo\n"


# A chain of parents, each of which writes when it sees its child stopped.
WATCHER = """
import os, signal, sys, time
depth = int(sys.argv[1])
child = 0
for _ in range(depth):
    child = os.fork()
    if child:
        break
if child == 0:
    print("ready", flush=True)
    while True:
        time.sleep(0.0005)
while True:
    _, status = os.waitpid(child, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        os._exit(0)
    os.write(1, b"stopped\\n")
"""


@pytest.mark.parametrize("depth", [1, 6])
def test_no_parent_sees_its_child_stopped(daemon: Daemon, sandbox: Any, depth: int) -> None:
    running = start(daemon, sandbox, ["python3", "-c", WATCHER, str(depth)])
    printed(daemon, running, b"ready\n")
    for _ in range(10):
        suspend(daemon, sandbox)
        resume(daemon, sandbox)
    assert output(daemon, running) == b"ready\n"


def test_a_shell_with_job_control_goes_on_with_its_command(daemon: Daemon, sandbox: Any) -> None:
    """As a person has one: the command is in the foreground of a terminal."""
    script = "set -m; sh -c 'echo be\"\"gun; read line; echo got $line'; echo over $?"
    running = start(daemon, sandbox, ["sh", "-c", script], tty={"rows": 24, "cols": 80})
    printed(daemon, running, b"begun\r\n")
    for _ in range(5):
        suspend(daemon, sandbox)
        resume(daemon, sandbox)
    daemon.ok("POST", f"{path_of(running)}/stdin", b"line\n")
    assert daemon.wait(running)["exit_code"] == 0
    assert b"over 0" in output(daemon, running)
    assert b"topped" not in output(daemon, running)


# Children without an end, each for some milliseconds.
FORKS = """
import os, time
print("ready", flush=True)
while True:
    try:
        if os.fork() == 0:
            time.sleep(0.003)
            os._exit(0)
        os.waitpid(-1, os.WNOHANG)
    except (BlockingIOError, ChildProcessError):
        pass
    os.write(1, b"x")
"""


def test_who_forks_without_an_end_stands_still(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, ["python3", "-c", FORKS])
    printed(daemon, running, b"ready\nxxx")
    for _ in range(3):
        suspend(daemon, sandbox)
        stays(daemon, running, 0.2)
        resume(daemon, sandbox)


def test_other_sandboxes_go_on(daemon: Daemon, create: Create) -> None:
    frozen, awake = create(), create()
    suspend(daemon, frozen)
    assert daemon.execute(awake["id"], ["echo", "on"])["stdout"] == "on\n"
    running = start(daemon, awake, TICK)
    printed(daemon, running, b"3\n")
    size = len(output(daemon, running))
    eventually(lambda: len(output(daemon, running)) > size)
