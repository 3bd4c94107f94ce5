# SPDX-License-Identifier: Apache-2.0
"""How an execution ends that did not end by itself, and what is kept of it."""

from __future__ import annotations

import threading
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
    processes_of,
    python,
    refused,
    start,
    uid_inside,
)
from tests.harness import Daemon

MIB = 1 << 20
IGNORE_TERM = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def test_a_timeout_keeps_what_was_printed(daemon: Daemon, sandbox: Any) -> None:
    began = time.monotonic()
    ran = daemon.execute(sandbox["id"], "printf partial; sleep 300", timeout_seconds=0.7)
    assert 0.65 < time.monotonic() - began < 6
    assert (ran["status"], ran["error_code"]) == ("TIMED_OUT", "SANDBOX_TIMEOUT")
    assert (ran["stdout"], ran["limit_owner"]) == ("partial", "execution")
    assert ran["limits"]["timeout_seconds"] == 0.7
    assert 0.65 < ran["usage"]["wall_seconds"] < 5


def test_a_sandbox_s_timeout_is_the_sandbox_s(daemon: Daemon, create: Create) -> None:
    made = create(limits={"timeout_seconds": "500ms"})
    ran = daemon.execute(made["id"], ["sleep", "300"])
    assert (ran["status"], ran["limit_owner"]) == ("TIMED_OUT", "sandbox")


def test_a_saturated_output_does_not_starve_the_timer(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], ["yes"], timeout_seconds=2, max_output_bytes="4G", stdin="")
    assert ran["status"] == "TIMED_OUT"
    # A starved timer would let it run for as long as there is room for its output.
    assert ran["usage"]["wall_seconds"] < 10
    assert ran["stdout"].startswith("y\ny\n")


@pytest.mark.parametrize("body", [{}, {"signal": "KILL"}, {"signal": 9}, {"grace_seconds": 0}])
def test_a_caller_s_kill_is_told_as_such(daemon: Daemon, sandbox: Any, body: Any) -> None:
    running = start(daemon, sandbox, "echo before; sleep 300 & sleep 300")
    printed(daemon, running, b"before")
    answer = daemon.ok("POST", f"{path_of(running)}/kill", body)
    ended = daemon.wait(answer)
    assert (ended["status"], ended["error_code"]) == ("KILLED", "KILLED_BY_CALLER")
    assert (ended["limit_owner"], ended["stdout"]) == (None, "before\n")
    refused(daemon.request("POST", f"{path_of(running)}/kill"), 409, "EXECUTION_FINISHED")


@pytest.mark.parametrize(("group", "said"), [(True, "caught twice"), (False, "caught once")])
def test_a_signal_for_the_group_reaches_its_children(
    daemon: Daemon, sandbox: Any, group: bool, said: str
) -> None:
    """The parent takes it with its child, or long before that; a session of its own is left out."""
    program = (
        "import os, signal, sys, time\n"
        "def caught(*_): raise InterruptedError\n"
        "signal.signal(signal.SIGINT, caught)\n"
        "child, other = os.fork(), 1\n"
        "if child: other = os.fork()\n"
        "if not other: os.setsid()\n"
        "try:\n"
        "    open(f'ready-{bool(child)}-{bool(other)}', 'w').close()\n"
        "    time.sleep(300)\n"
        "except InterruptedError: pass\n"
        "if not child: os._exit(3)\n"
        "if not other: os._exit(4)\n"
        "gone = []\n"
        "end = time.monotonic() + (60 if sys.argv[1] == 'True' else 1)\n"
        "while not gone and time.monotonic() < end:\n"
        "    pid, status = os.waitpid(-1, os.WNOHANG)\n"
        "    if pid: gone.append(pid)\n"
        "    else: time.sleep(0.01)\n"
        "assert gone in ([], [child])\n"
        "print('caught twice' if gone else 'caught once')\n"
    )
    body = {"argv": ["python3", "-c", program, str(group)], "wait": False}
    running = daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/executions", body)
    names = {"ready-True-True", "ready-True-False", "ready-False-True"}
    eventually(lambda: names <= set(daemon.execute(sandbox["id"], "ls")["stdout"].split()))
    daemon.ok("POST", f"{path_of(running)}/kill", {"signal": "SIGINT", "group": group})
    ended = daemon.wait(running)
    assert (ended["status"], ended["stdout"]) == ("EXITED", f"{said}\n"), ended["stderr"]


def test_another_signal_goes_to_the_program(daemon: Daemon, sandbox: Any) -> None:
    script = "trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.05; done"
    running = start(daemon, sandbox, script)
    printed(daemon, running, b"ready")
    daemon.ok("POST", f"{path_of(running)}/kill", {"signal": "SIGUSR1"})
    ended = daemon.wait(running)
    assert (ended["status"], ended["exit_code"]) == ("EXITED", 9)
    assert ended["stdout"] == "ready\ngot\n"


def test_grace_lets_a_program_clean_up(daemon: Daemon, sandbox: Any) -> None:
    script = "trap 'echo bye > out; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    running = start(daemon, sandbox, script)
    printed(daemon, running, b"ready")
    daemon.ok("POST", f"{path_of(running)}/kill", {"grace_seconds": 20})
    ended = daemon.wait(running)
    assert (ended["status"], ended["error_code"]) == ("KILLED", "KILLED_BY_CALLER")
    assert ended["usage"]["wall_seconds"] < 15
    assert daemon.execute(sandbox["id"], ["cat", "out"])["stdout"] == "bye\n"


def test_grace_ends(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, IGNORE_TERM)
    printed(daemon, running, b"ready")
    began = time.monotonic()
    daemon.ok("POST", f"{path_of(running)}/kill", {"grace_seconds": 0.5})
    ended = daemon.wait(running)
    assert 0.4 < time.monotonic() - began < 6
    assert ended["status"] == "KILLED"


def test_a_timeout_with_grace_sends_sigterm_first(daemon: Daemon, sandbox: Any) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    ran = daemon.execute(sandbox["id"], script, timeout_seconds=2, kill_grace_seconds=20)
    assert (ran["status"], ran["stdout"]) == ("TIMED_OUT", "ready\nbye\n")
    ran = daemon.execute(sandbox["id"], IGNORE_TERM, timeout_seconds=2, kill_grace_seconds="300ms")
    assert (ran["status"], ran["stdout"]) == ("TIMED_OUT", "ready\n")
    assert ran["usage"]["wall_seconds"] < 10


def test_release_ends_what_runs(daemon: Daemon) -> None:
    made = daemon.create()
    uid = uid_inside(daemon, made)
    running = start(daemon, made, "echo here; sleep 300 & sleep 300")
    printed(daemon, running, b"here")
    daemon.release(made["id"])
    # Nothing of it is left once release has answered; a non-root daemon's uid is everybody's.
    if uid != daemon.ok("GET", f"/v1/sandboxes/{made['id']}")["owner_uid"]:
        assert processes_of(uid) == []
    ended = daemon.wait(running)
    assert (ended["status"], ended["error_code"]) == ("KILLED", "SANDBOX_RELEASED")
    assert ended["stdout"] == "here\n"


def test_a_waiting_client_is_answered_by_release(daemon: Daemon) -> None:
    made = daemon.create()
    answers: list[Any] = []
    client = threading.Thread(
        target=lambda: answers.append(daemon.execute(made["id"], ["sleep", "300"]))
    )
    client.start()
    listed = f"{executions(made)}?status=RUNNING"
    eventually(lambda: daemon.ok("GET", listed)["executions"])
    daemon.release(made["id"])
    client.join(20)
    assert (answers[0]["status"], answers[0]["error_code"]) == ("KILLED", "SANDBOX_RELEASED")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_output_cap_keeps_exactly_the_first_bytes(
    daemon: Daemon, sandbox: Any, stream: str
) -> None:
    number = {"stdout": 1, "stderr": 2}[stream]
    code = f"import os\nn = 0\nwhile True: os.write({number}, b'%07d\\n' % n); n += 1"
    ran = daemon.execute(sandbox["id"], python(code), max_output_bytes=100_001)
    assert (ran["status"], ran["error_code"]) == (
        "OUTPUT_LIMIT", "SANDBOX_OUTPUT_LIMIT_EXCEEDED"
    )  # fmt: skip
    assert ran["limit_owner"] == "execution"
    expected = b"".join(b"%07d\n" % n for n in range(12_501))[:100_001]
    assert output(daemon, ran, stream) == expected == ran[stream].encode()
    assert ran[f"{stream}_truncated"] is True
    assert daemon.execute(sandbox["id"], ["true"])["status"] == "EXITED"


def test_output_of_exactly_the_cap_is_no_excess(daemon: Daemon, sandbox: Any) -> None:
    argv = ["head", "-c", str(MIB), "/dev/zero"]
    ran = daemon.execute(sandbox["id"], argv, max_output_bytes=MIB)
    assert (ran["status"], ran["stdout_truncated"]) == ("EXITED", False)
    assert ran["stdout_bytes"] == MIB


def test_each_stream_has_the_cap_for_itself(daemon: Daemon, sandbox: Any) -> None:
    script = "head -c 1000 /dev/zero; head -c 1000 /dev/zero >&2"
    ran = daemon.execute(sandbox["id"], script, max_output_bytes=1000)
    assert (ran["status"], ran["stdout_bytes"], ran["stderr_bytes"]) == ("EXITED", 1000, 1000)


def test_cpu_seconds_end_a_spinning_program(daemon: Daemon, sandbox: Any) -> None:
    limits = {"cpu_seconds": 1}
    ran = daemon.execute(
        sandbox["id"], python("while True: pass"), limits=limits, timeout_seconds=40
    )
    assert (ran["status"], ran["error_code"]) == (
        "CPU_TIME_EXCEEDED", "SANDBOX_CPU_TIME_LIMIT_EXCEEDED"
    )  # fmt: skip
    assert ran["limit_owner"] == "execution"
    # The kernel looks at RLIMIT_CPU by ticks, which are coarser than what it adds up for usage.
    assert 0.4 < ran["usage"]["cpu_seconds"] < 3


def test_many_ends_at_the_timeout_are_all_answered(daemon: Daemon, sandbox: Any) -> None:
    running = [start(daemon, sandbox, ["sleep", "0.5"], timeout_seconds=0.5) for _ in range(12)]
    ends = {daemon.wait(one)["status"] for one in running}
    assert ends <= {"EXITED", "TIMED_OUT"}
    assert daemon.ok("GET", "/healthz")["status"] == "ok"
