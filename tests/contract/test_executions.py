# SPDX-License-Identifier: Apache-2.0
"""One command: what it is given, how its end is told, waiting and not waiting."""

from __future__ import annotations

import re
import signal
import time
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import executions, path_of, python, refused, start
from tests.harness import Daemon

FIELDS = {"id", "sandbox_id", "status", "error_code", "limit_owner", "exit_code", "signal", "argv",
          "cwd", "tty", "stdin_open", "stdout", "stderr", "stdout_bytes", "stderr_bytes",
          "stdout_truncated", "stderr_truncated", "leftovers_killed", "limits", "enforcement",
          "usage", "unit", "created_at", "started_at", "finished_at"}  # fmt: skip
USAGE = {"wall_seconds", "cpu_seconds", "cpu_user_seconds", "cpu_system_seconds",
         "cpu_throttled_seconds", "memory_peak_bytes", "pids_peak", "io_read_bytes",
         "io_written_bytes", "oom_kills", "pids_denied"}  # fmt: skip
SHOW_ARGV = "import sys, os; print([os.fsencode(a) for a in sys.argv[1:]])"


def test_a_plain_run_says_all_it_should(daemon: Daemon, sandbox: Any, scheme: str) -> None:
    answer = daemon.request(
        "POST", executions(sandbox), {"argv": ["sh", "-c", "echo o; echo e>&2"]}
    )
    assert answer.status == 200
    ran = answer.json
    assert set(ran) >= FIELDS
    assert re.fullmatch("[a-z2-7]{12}", ran["id"])
    assert (ran["status"], ran["exit_code"], ran["signal"]) == ("EXITED", 0, None)
    assert (ran["error_code"], ran["limit_owner"]) == (None, None)
    assert (ran["stdout"], ran["stderr"]) == ("o\n", "e\n")
    assert (ran["stdout_bytes"], ran["stderr_bytes"]) == (2, 2)
    assert (ran["stdout_truncated"], ran["leftovers_killed"]) == (False, 0)
    assert (ran["unit"] is not None) == (scheme == "systemd")
    assert daemon.ok("GET", path_of(ran)) == ran


def test_times_are_in_order_for_the_shortest_commands(daemon: Daemon, sandbox: Any) -> None:
    for _ in range(10):
        ran = daemon.execute(sandbox["id"], ["true"])
        assert ran["created_at"] <= ran["started_at"] <= ran["finished_at"]


def test_usage_is_measured_or_null(daemon: Daemon, sandbox: Any) -> None:
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    usage = daemon.execute(sandbox["id"], python(burn))["usage"]
    assert set(usage) >= USAGE
    assert 0.25 < usage["cpu_seconds"] < 3
    assert usage["wall_seconds"] > 0.25
    assert usage["memory_peak_bytes"] is None or usage["memory_peak_bytes"] > 1 << 20
    assert usage["pids_peak"] is None or usage["pids_peak"] >= 1


def test_argv_is_exact(daemon: Daemon, sandbox: Any) -> None:
    given = ["", " ", "$HOME", "*", "a b", "'", '"', "\n", "ü\U0001f600", "--", "; exit 3"]
    ran = daemon.execute(sandbox["id"], python(SHOW_ARGV, *given))
    assert ran["stdout"] == f"{[one.encode() for one in given]}\n"
    assert ran["argv"] == python(SHOW_ARGV, *given)


def test_command_goes_through_the_shell(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], 'a="x y"; for i in 1 2; do echo "$a$i" | cat; done; exit 7')
    assert (ran["stdout"], ran["exit_code"]) == ("x y1\nx y2\n", 7)
    assert ran["argv"][:2] == ["/bin/sh", "-c"]


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 128, 137, 143, 255])
def test_an_exit_code_is_told_as_it_is(daemon: Daemon, sandbox: Any, code: int) -> None:
    ran = daemon.execute(sandbox["id"], f"exit {code}")
    assert (ran["status"], ran["exit_code"], ran["signal"]) == ("EXITED", code, None)
    assert ran["error_code"] is None


@pytest.mark.parametrize("name", ["TERM", "SEGV", "PIPE", "ABRT", "USR1", "KILL"])
def test_a_signal_of_its_own_is_no_limit(daemon: Daemon, sandbox: Any, name: str) -> None:
    ran = daemon.execute(sandbox["id"], f"kill -{name} $$; sleep 60")
    assert (ran["status"], ran["exit_code"]) == ("SIGNALED", None)
    assert ran["signal"] == signal.Signals[f"SIG{name}"]
    assert (ran["error_code"], ran["limit_owner"]) == (None, None)


def test_the_execution_s_environment_comes_over_the_sandbox_s(
    daemon: Daemon, create: Create
) -> None:
    made = create(env={"A": "sandbox", "B": "sandbox", "LANG": "xx"})
    given = {"B": "exec ution\n$X", "EMPTY": ""}
    show = "import os; print([os.environ.get(n) for n in ('A', 'B', 'EMPTY', 'LANG', 'NO')])"
    ran = daemon.execute(made["id"], python(show), env=given)
    assert ran["stdout"] == f"{['sandbox', given['B'], '', 'xx', None]}\n"


# For runtimes, which see no cgroup's limits at any level.
HINTS = {"JDK_JAVA_OPTIONS", "NODE_OPTIONS", "GOMEMLIMIT", "GOMAXPROCS"}


def test_the_server_s_own_environment_stays_outside(daemon: Daemon, sandbox: Any) -> None:
    inside = daemon.execute(sandbox["id"], ["env"])["stdout"].splitlines()
    names = {line.split("=", 1)[0] for line in inside}
    assert names == {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR"} | HINTS
    assert "LANG=C.UTF-8" in inside


def test_the_working_directory_is_home_or_below_it(daemon: Daemon, sandbox: Any) -> None:
    home = daemon.execute(sandbox["id"], 'pwd; mkdir -p a/b; test "$HOME" = "$(pwd)"')
    assert home["exit_code"] == 0
    below = daemon.execute(sandbox["id"], ["pwd"], cwd="a/b")
    assert below["stdout"] == home["stdout"].rstrip("\n") + "/a/b\n"
    assert daemon.execute(sandbox["id"], ["pwd"], cwd="/usr")["stdout"] == "/usr\n"


def test_not_waiting_answers_with_the_running_one(daemon: Daemon, sandbox: Any) -> None:
    body = {"argv": ["sh", "-c", "read x; exit 5"], "wait": False, "stdin": "x\n"}
    answer = daemon.request("POST", executions(sandbox), body)
    assert answer.status == 201
    assert answer.json["status"] in {"RUNNING", "EXITED"}
    ended = daemon.wait(answer.json)
    assert (ended["status"], ended["exit_code"]) == ("EXITED", 5)


def test_a_bounded_wait_answers_with_the_still_running_one(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, ["sleep", "300"])
    assert running["status"] == "RUNNING"
    assert (running["exit_code"], running["finished_at"]) == (None, None)
    began = time.monotonic()
    still = daemon.ok("GET", f"{path_of(running)}?wait=0.3")
    assert still["status"] == "RUNNING"
    assert 0.25 < time.monotonic() - began < 5


def test_a_client_that_goes_away_leaves_its_execution_running(daemon: Daemon, sandbox: Any) -> None:
    with pytest.raises(TimeoutError):
        daemon.request(
            "POST", executions(sandbox), {"command": "sleep 1.5; echo done"}, timeout=0.7
        )
    (listed,) = daemon.ok("GET", executions(sandbox))["executions"]
    ended = daemon.wait(listed)
    assert (ended["status"], ended["stdout"]) == ("EXITED", "done\n")


def test_unknown_executions_are_not_found(daemon: Daemon, sandbox: Any) -> None:
    for path, method in (("", "GET"), ("/output", "GET"), ("/kill", "POST")):
        answer = daemon.request(method, f"{executions(sandbox)}/aaaaaaaaaaaa{path}")
        refused(answer, 404, "EXECUTION_NOT_FOUND")
