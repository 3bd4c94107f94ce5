# SPDX-License-Identifier: Apache-2.0
"""A terminal: named inside, of the size asked for, one stream out, keys in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.probes import eventually, find, output, path_of, printed, python, refused, start
from tests.harness import Daemon

SIZE = {"rows": 31, "cols": 117}


def terminal(daemon: Daemon, sandbox: Any, argv: list[str] | str, **body: Any) -> Any:
    """A running execution with a terminal."""
    return start(daemon, sandbox, argv, tty=SIZE, **body)


def type_in(daemon: Daemon, running: Any, keys: bytes) -> None:
    daemon.ok("POST", f"{path_of(running)}/stdin", keys)


def test_it_is_a_terminal_with_a_name_and_a_size(daemon: Daemon, sandbox: Any) -> None:
    running = terminal(daemon, sandbox, "tty; stty size; test -t 0 && test -t 1 && test -t 2")
    ended = daemon.wait(running)
    name, size = ended["stdout"].splitlines()
    assert name.startswith("/dev/pts/")
    assert size == "31 117"
    assert (ended["exit_code"], ended["stderr"], ended["stderr_bytes"]) == (0, "", 0)


def test_the_terminal_is_the_commands_own(daemon: Daemon, sandbox: Any) -> None:
    script = 'stat -c "%a %u" "$(tty)"; id -u; echo by name > "$(tty)"; echo ctty > /dev/tty'
    mode_and_owner, uid, *rest = daemon.wait(terminal(daemon, sandbox, script))[
        "stdout"
    ].splitlines()
    assert mode_and_owner == f"600 {uid}"
    assert rest == ["by name", "ctty"]


def test_no_other_terminal_is_in_reach_and_their_number_is_bounded(
    daemon: Daemon, sandbox: Any
) -> None:
    other = terminal(daemon, sandbox, ["sleep", "300"])
    seen = daemon.wait(terminal(daemon, sandbox, "tty; ls /dev/pts"))["stdout"].split()
    assert seen == ["/dev/pts/0", "0", "ptmx"]
    code = (
        "import os\nheld = []\ntry:\n  while True: held.append(os.open('/dev/ptmx', os.O_RDWR))\n"
        "except OSError as exc: print(len(held), exc.strerror)"
    )
    # With the execution's own one they are 64.
    ended = daemon.wait(terminal(daemon, sandbox, python(code)))
    assert ended["stdout"] == "63 No space left on device\r\n"
    assert daemon.execute(sandbox["id"], python(code))["stdout"].startswith("64 ")
    daemon.ok("POST", f"{path_of(other)}/kill")


@pytest.mark.parametrize("level", ["basic", "standard", "strict"])
def test_it_is_the_same_at_every_level(daemon: Daemon, create: Any, level: str) -> None:
    if not daemon.ok("GET", "/v1/host")["isolation"]["levels"][level]["available"]:
        with pytest.raises(AssertionError, match="ISOLATION_UNSUPPORTED"):
            create(isolation=level)
        return
    sandbox = create(isolation=level)
    ended = daemon.wait(terminal(daemon, sandbox, "tty; stty size; echo x > /dev/tty"))
    assert ended["stdout"] == "/dev/pts/0\r\n31 117\r\nx\r\n"


def test_a_persons_shell_has_the_longest_time_unless_somebody_named_one(
    daemon: Daemon, create: Any
) -> None:
    def timeout(sandbox: Any, **body: Any) -> float:
        running = terminal(daemon, sandbox, "true", **body)
        return float(daemon.wait(running)["limits"]["timeout_seconds"])

    unnamed, named = create(), create(limits={"timeout_seconds": 300})
    assert timeout(unnamed) == 7 * 86400
    assert timeout(unnamed, timeout_seconds=40) == 40
    assert timeout(named) == 300
    assert daemon.execute(unnamed["id"], "true")["limits"]["timeout_seconds"] == 300
    daemon.ok("PATCH", f"/v1/sandboxes/{unnamed['id']}", {"limits": {"timeout_seconds": 301}})
    assert timeout(unnamed) == 301


def test_both_streams_are_one_in_order(daemon: Daemon, sandbox: Any) -> None:
    ended = daemon.wait(terminal(daemon, sandbox, "for n in 1 2 3; do echo $n; echo e$n >&2; done"))
    assert ended["stdout"] == "1\r\ne1\r\n2\r\ne2\r\n3\r\ne3\r\n"


def test_the_environment_names_a_terminal_type(daemon: Daemon, sandbox: Any) -> None:
    show = "echo $TERM"
    assert daemon.wait(terminal(daemon, sandbox, show))["stdout"] == "xterm\r\n"
    own = terminal(daemon, sandbox, show, env={"TERM": "vt100"})
    assert daemon.wait(own)["stdout"] == "vt100\r\n"
    assert daemon.execute(sandbox["id"], show)["stdout"] == "\n"


def test_keys_are_echoed_and_end_of_input_is_a_key(daemon: Daemon, sandbox: Any) -> None:
    running = terminal(daemon, sandbox, "read line; echo got $line; exec cat")
    type_in(daemon, running, b"hello\n")
    assert printed(daemon, running, b"got hello\r\n") == b"hello\r\ngot hello\r\n"
    type_in(daemon, running, b"\x04")
    assert daemon.wait(running)["exit_code"] == 0


def test_closing_input_types_the_end_of_it(daemon: Daemon, sandbox: Any) -> None:
    running = terminal(daemon, sandbox, "stty eof '#'; echo set; cat; read x; echo $x")
    printed(daemon, running, b"set")
    assert daemon.request("POST", f"{path_of(running)}/stdin/close").status == 204
    # A terminal goes on after it.
    type_in(daemon, running, b"more\n")
    assert daemon.wait(running)["stdout"].endswith("more\r\nmore\r\n")


def test_interrupt_and_jobs_work_as_in_any_terminal(daemon: Daemon, sandbox: Any) -> None:
    running = terminal(daemon, sandbox, ["bash", "--norc", "-i"], env={"PS1": "ready> "})
    printed(daemon, running, b"ready> ")
    type_in(daemon, running, b"sleep 98765\n")
    eventually(lambda: find("sleep 98765"))
    type_in(daemon, running, b"\x03")
    eventually(lambda: not find("sleep 98765"))
    type_in(daemon, running, b"echo rc=$?\n")
    printed(daemon, running, b"rc=130\r\n")
    assert b"job control" not in output(daemon, running)
    type_in(daemon, running, b"exit 7\n")
    ended = daemon.wait(running)
    assert (ended["status"], ended["exit_code"]) == ("EXITED", 7)


def test_a_new_size_is_told_to_the_program(daemon: Daemon, sandbox: Any) -> None:
    script = "trap 'stty size' WINCH; echo up; while :; do read x && exit; done"
    running = terminal(daemon, sandbox, script)
    printed(daemon, running, b"up")
    answer = daemon.request("POST", f"{path_of(running)}/resize", {"rows": 5, "cols": 6})
    assert answer.status == 204
    printed(daemon, running, b"5 6\r\n")
    type_in(daemon, running, b"\n")
    daemon.wait(running)
    again = daemon.request("POST", f"{path_of(running)}/resize", {"rows": 5, "cols": 6})
    refused(again, 409, "EXECUTION_FINISHED")


def test_what_has_no_terminal_has_no_size(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, ["sleep", "300"])
    answer = daemon.request("POST", f"{path_of(running)}/resize", {"rows": 5, "cols": 6})
    refused(answer, 400, "INVALID_REQUEST")
    for body in ({"rows": 5}, {"rows": 5, "cols": 0}, {}):
        refused(daemon.request("POST", f"{path_of(running)}/resize", body), 400, "INVALID_REQUEST")
    daemon.ok("POST", f"{path_of(running)}/kill")


def test_output_goes_on_after_the_program_closed_its_terminal(daemon: Daemon, sandbox: Any) -> None:
    script = "name=$(tty); exec <&- >&- 2>&-; sleep 0.3; exec > $name; echo again"
    ended = daemon.wait(terminal(daemon, sandbox, script))
    assert (ended["stdout"], ended["exit_code"]) == ("again\r\n", 0)


def test_the_last_words_are_whole(daemon: Daemon, sandbox: Any) -> None:
    for _ in range(10):
        ended = daemon.wait(terminal(daemon, sandbox, "seq 2000"))
        assert ended["stdout"].split() == [str(n) for n in range(1, 2001)]


def test_leftovers_of_a_terminal_are_killed(daemon: Daemon, sandbox: Any) -> None:
    running = terminal(daemon, sandbox, "setsid sleep 98764 & sleep 98763 & echo done")
    ended = daemon.wait(running)
    assert ended["exit_code"] == 0
    assert "done" in ended["stdout"]
    assert not find("sleep 98764")
    assert not find("sleep 98763")


@pytest.mark.parametrize("end", ["timeout", "output", "kill"])
def test_limits_hold_in_a_terminal(daemon: Daemon, sandbox: Any, end: str) -> None:
    if end == "output":
        ended = daemon.wait(terminal(daemon, sandbox, "yes", max_output_bytes=1000))
        assert (ended["status"], ended["stdout_bytes"]) == ("OUTPUT_LIMIT", 1000)
    elif end == "timeout":
        ended = daemon.wait(terminal(daemon, sandbox, "echo x; exec sleep 300", timeout_seconds=1))
        assert (ended["status"], ended["stdout"]) == ("TIMED_OUT", "x\r\n")
    else:
        running = terminal(daemon, sandbox, ["sleep", "300"])
        daemon.ok("POST", f"{path_of(running)}/kill")
        assert daemon.wait(running)["error_code"] == "KILLED_BY_CALLER"


def test_a_program_that_does_not_read_its_terminal_holds_up_the_typist_alone(
    daemon: Daemon, sandbox: Any
) -> None:
    running = terminal(daemon, sandbox, "stty raw -echo; echo raw; exec sleep 300")
    printed(daemon, running, b"raw")
    target = f"{path_of(running)}/stdin"
    with pytest.raises(TimeoutError):
        daemon.request("POST", target, b"x" * 1_000_000, timeout=2)
    assert daemon.execute(sandbox["id"], ["echo", "ok"])["stdout"] == "ok\n"
    daemon.ok("POST", f"{path_of(running)}/kill")


OPEN_ALL = """
import os
held = []
try:
    while True: held.append(os.openpty())
except OSError: print(len(held))
"""


def test_the_more_executions_run_the_fewer_terminals_each_may_open(
    daemon: Daemon, sandbox: Any
) -> None:
    """Together they never have all of the host's, and one with a terminal always gets it."""
    alone = int(daemon.execute(sandbox["id"], python(OPEN_ALL))["stdout"])
    assert 1 < alone <= 64
    running = [start(daemon, sandbox, ["sleep", "1000"]) for _ in range(30)]
    beside = int(daemon.execute(sandbox["id"], python(OPEN_ALL))["stdout"])
    assert beside < alone
    ran = daemon.execute(sandbox["id"], python(OPEN_ALL), tty={"rows": 24, "cols": 80})
    assert int(ran["stdout"]) == beside - 1
    for one in running:
        daemon.ok("POST", f"{path_of(one)}/kill")
