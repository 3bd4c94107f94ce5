# SPDX-License-Identifier: Apache-2.0
"""Whole process trees: nothing of an execution outlives it, and nothing of it is waited for."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import find, printed, python, start
from tests.harness import Daemon

# A daemon as in the books: new session, second fork, its own stdio.
DAEMONISE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        open("started", "w").close()
        os.execlp("sleep", "sleep", sys.argv[1])
    os._exit(0)
os.wait()
while not os.path.exists("started"):
    time.sleep(0.01)
"""
STOPPED = "import os, signal; print('here', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"


def marker(sandbox: Any, number: int) -> str:
    """A number of seconds that no other process on this host sleeps."""
    digits = "".join(str(ord(char) % 10) for char in sandbox["id"])
    return f"9{number}{digits}"


def test_a_daemonised_child_is_killed_and_counted(daemon: Daemon, sandbox: Any) -> None:
    seconds = marker(sandbox, 1)
    ran = daemon.execute(sandbox["id"], python(DAEMONISE, seconds))
    assert (ran["status"], ran["exit_code"], ran["leftovers_killed"]) == ("EXITED", 0, 1)
    assert find(f"sleep {seconds}") == []


def test_a_child_that_holds_the_pipe_delays_nothing(daemon: Daemon, sandbox: Any) -> None:
    seconds = marker(sandbox, 2)
    began = time.monotonic()
    ran = daemon.execute(sandbox["id"], f"sleep {seconds} & sleep {seconds} & echo ok")
    assert time.monotonic() - began < 10
    assert (ran["status"], ran["stdout"], ran["leftovers_killed"]) == ("EXITED", "ok\n", 2)
    assert find(f"sleep {seconds}") == []


def test_many_leftovers_are_all_counted(daemon: Daemon, sandbox: Any) -> None:
    seconds = marker(sandbox, 3)
    script = f"n=0; while [ $n -lt 60 ]; do sleep {seconds} & n=$((n + 1)); done; exit 4"
    ran = daemon.execute(sandbox["id"], script)
    assert (ran["exit_code"], ran["leftovers_killed"]) == (4, 60)
    assert find(f"sleep {seconds}") == []


def test_children_that_ended_are_no_leftovers(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], "(true); (true & wait); true & wait; echo x | cat")
    assert (ran["exit_code"], ran["leftovers_killed"]) == (0, 0)


def test_work_without_waiting_keeps_its_children(daemon: Daemon, sandbox: Any) -> None:
    seconds = marker(sandbox, 4)
    running = start(daemon, sandbox, f"sleep {seconds} & echo up; wait")
    printed(daemon, running, b"up")
    assert daemon.execute(sandbox["id"], ["true"])["leftovers_killed"] == 0
    assert find(f"sleep {seconds}")


@pytest.mark.parametrize(
    "script",
    [
        "echo here; echo x | sh -c 'sh -c \"sleep {s}; true\"'; true",
        "echo here; sleep {s} & wait",
        "trap '' TERM HUP INT; echo here; sleep {s}; true",
        "sh -c 'kill -STOP $$' & sleep {s} & echo here; wait",
    ],
    ids=["pipeline", "background", "ignores SIGTERM", "stopped"],
)
def test_a_timeout_takes_the_whole_tree(daemon: Daemon, sandbox: Any, script: str) -> None:
    seconds = marker(sandbox, 5)
    began = time.monotonic()
    command = script.replace("{s}", seconds)
    ran = daemon.execute(sandbox["id"], command, timeout_seconds=0.6)
    assert time.monotonic() - began < 6
    assert (ran["status"], ran["stdout"]) == ("TIMED_OUT", "here\n")
    assert find(f"sleep {seconds}") == []


def test_a_timeout_takes_a_daemonised_child(daemon: Daemon, sandbox: Any) -> None:
    seconds = marker(sandbox, 6)
    code = f"{DAEMONISE}\nprint('away', flush=True)\ntime.sleep(300)"
    ran = daemon.execute(sandbox["id"], python(code, seconds), timeout_seconds=2)
    assert (ran["status"], ran["stdout"]) == ("TIMED_OUT", "away\n")
    assert find(f"sleep {seconds}") == []


def test_a_stopped_program_can_be_killed(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, python(STOPPED))
    printed(daemon, running, b"here")
    daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/executions/{running['id']}/kill")
    assert daemon.wait(running)["status"] == "KILLED"


def test_an_interactive_shell_without_a_terminal_ends(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], ["/bin/sh", "-ic", "true"], timeout_seconds=20)
    assert (ran["status"], ran["exit_code"]) == ("EXITED", 0)


# Without a uid and a pid namespace of its own, a command's kill would reach this very test.
@pytest.mark.usefixtures("requires_root")
def test_one_execution_s_end_touches_no_other(daemon: Daemon, create: Create) -> None:
    one, two = create(), create()
    bystanders = [start(daemon, made, ["sleep", marker(made, 7)]) for made in (one, two)]
    assert daemon.execute(one["id"], "kill -9 -1; true")["status"] in {"EXITED", "SIGNALED"}
    assert daemon.execute(one["id"], ["sleep", "300"], timeout_seconds=0.3)["status"] == "TIMED_OUT"
    for running in bystanders[1:]:
        target = f"/v1/sandboxes/{running['sandbox_id']}/executions/{running['id']}"
        assert daemon.ok("GET", target)["status"] == "RUNNING"
    assert find(f"sleep {marker(two, 7)}")
