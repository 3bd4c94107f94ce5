# SPDX-License-Identifier: Apache-2.0
"""sandboxctl's hands on what runs: attach, wait, kill and rm of many, logs and events from a place
on, others' sandboxes, a host that drains."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.caller import FIRST_UID, caller
from tests.contract.probes import eventually, printed, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.sandboxctl import END_SECONDS, ctl, started
from tests.integration.terminal import Terminal

pytestmark = pytest.mark.timeout(180)
SHELL = ["env", "PS1=$ ", "sh"]
daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off")


@pytest.fixture
def box(daemon: Daemon) -> Iterator[Any]:
    made = daemon.create(name="box")
    yield made
    daemon.release(made["id"])


def test_a_terminal_that_was_left_is_taken_up_again(daemon: Daemon, box: Any) -> None:
    terminal = Terminal(daemon, "exec", "-it", "box", "--", *SHELL)
    terminal.wait_for("$ ")
    terminal.type("echo fi''rst\r")
    terminal.wait_for("first\r\n$ ")
    terminal.type("\x10\x11")
    terminal.wait_for("sandboxctl attach ")
    assert terminal.process.wait(END_SECONDS) == 0
    terminal.wait_for("\n")
    terminal.end()
    [running] = daemon.ok("GET", "/v1/executions?status=RUNNING")["executions"]
    again = Terminal(daemon, "attach", box["id"], running["id"], rows=20, cols=70)
    # Where the cursor was, and not all that was printed before.
    again.wait_for("$ ")
    again.type("stty size; echo sec''ond\r")
    again.wait_for("20 70\r\nsecond\r\n")
    assert b"first" not in again.screen
    again.type("exit 6\r")
    assert again.end() == 6


def test_attach_shows_what_comes_and_passes_input_on(daemon: Daemon, box: Any) -> None:
    program = "echo before; while read line; do echo got $line; done; exit 4"
    running = start(daemon, box, program, stdin_open=True)
    printed(daemon, running, b"before")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started(daemon, "attach", "-iq", "box", running["id"], **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"got one\n"
        process.stdin.close()
        assert process.wait(END_SECONDS) == 4
    said = ctl(daemon, "attach", "box", running["id"], code=125).stderr
    assert "it is EXITED" in said
    assert "sandboxctl logs" in said
    deaf = start(daemon, box, "sleep 300")
    assert "without -i" in ctl(daemon, "attach", "-i", "box", deaf["id"], code=125).stderr


def test_wait_gives_the_exit_code(daemon: Daemon, box: Any) -> None:
    one = start(daemon, box, "until [ -e go ]; do sleep 0.05; done; exit 9")
    with started(daemon, "wait", "box", one["id"]) as waiting:
        daemon.execute(box["id"], "touch go")
        assert waiting.wait(END_SECONDS) == 9
    said = ctl(daemon, "wait", "box", one["id"], code=9)
    assert f"{one['id']}: exited with code 9" in said.stderr
    [ended] = json.loads(ctl(daemon, "wait", "-qo", "json", "box", one["id"], code=9).stdout)
    assert ended["id"] == one["id"]
    assert ctl(daemon, "wait", "box").stderr == ""


def test_kill_of_a_sandbox_is_of_all_in_it(daemon: Daemon, box: Any) -> None:
    running = [start(daemon, box, "sleep 300") for _ in range(2)]
    ctl(daemon, "kill", "box")
    for one in running:
        assert daemon.wait(one)["error_code"] == "KILLED_BY_CALLER"
    assert json.loads(ctl(daemon, "kill", "-o", "json", "box").stdout) == []


@pytest.mark.usefixtures("requires_root")
def test_rm_of_many_leaves_other_owners_ones(daemon: Daemon) -> None:
    daemon.open_to_all()
    with caller(daemon, FIRST_UID) as somebody:
        theirs = somebody.ok("POST", "/v1/sandboxes", {"name": "theirs", "metadata": {"a": "1"}})
        for number in range(3):
            daemon.create(name=f"many-{number}", metadata={"a": str(number % 2)})
        ctl(daemon, "rm", "--metadata", "a=1")
        listed = ctl(daemon, "ls").stdout
        assert ("many-0" in listed, "many-1" in listed, "many-2" in listed) == (True, False, True)
        ctl(daemon, "rm", "--all")
        assert ctl(daemon, "ls", "--ids").stdout.split() == [theirs["id"]]
        assert "name sandboxes" in ctl(daemon, "rm", code=125).stderr
        assert "leave one" in ctl(daemon, "rm", "--all", "theirs", code=125).stderr
        # By its name alone it is not ours, and the message leads on.
        refused = ctl(daemon, "exec", "theirs", "--", "true", code=125).stderr
        assert f"it is another owner's: call it {FIRST_UID}/theirs" in refused
        assert f"{FIRST_UID}/theirs" in ctl(daemon, "rm", "theirs", code=125).stderr
        named = f"{FIRST_UID}/theirs"
        assert ctl(daemon, "exec", "-q", named, "--", "echo", "in").stdout == "in\n"
        assert theirs["id"] in ctl(daemon, "inspect", named).stdout
        assert "cannot find" in ctl(daemon, "rm", "nobody/theirs", code=125).stderr
        ctl(daemon, "rm", named)
    assert ctl(daemon, "ls", "--ids").stdout == ""


def test_owners_and_sandboxes_have_names_in_lists(daemon: Daemon, box: Any) -> None:
    start(daemon, box, "sleep 300")
    user = pwd.getpwuid(os.geteuid()).pw_name
    header, row = ctl(daemon, "ls").stdout.splitlines()
    assert header.split()[-2:] == ["OWNER", "AGE"]
    assert user in row.split()
    _, row = ctl(daemon, "ps").stdout.splitlines()
    assert row.split()[0] == "box"
    [metrics] = json.loads(ctl(daemon, "stats", "-o", "json").stdout)
    assert metrics["name"] == "box"


def test_logs_from_the_last_lines_on(daemon: Daemon, box: Any) -> None:
    script = "seq 100000; echo e1 >&2; printf e2 >&2"
    ended = daemon.execute(box["id"], script)
    for argv, out, error in (
        (["-n", "2"], "99999\n100000\n", "e1\ne2"),
        (["--tail", "1"], "100000\n", "e2"),
        (["--tail", "0"], "", ""),
        (["-f", "--tail", "1"], "100000\n", "e2"),
        (["--tail", "200000"], "".join(f"{n}\n" for n in range(1, 100001)), "e1\ne2"),
        (["--tail", "50000"], "".join(f"{n}\n" for n in range(50001, 100001)), "e1\ne2"),
    ):
        done = ctl(daemon, "logs", *argv, "box", ended["id"])
        assert (done.stdout, done.stderr) == (out, error), argv
    ctl(daemon, "logs", "--tail", "-1", "box", code=125)


def test_events_of_before_are_shown(daemon: Daemon, box: Any) -> None:
    daemon.execute(box["id"], "exit 8")
    for since, shown in (("1h", True), ("2999-01-01T00:00:00Z", False)):
        argv = ["events", "-o", "json", "--since", since]
        with started(daemon, *argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if shown:
                for line in process.stdout:
                    if json.loads(line)["exit_code"] == 8:
                        break
            process.terminate()
            rest, _ = process.communicate(timeout=END_SECONDS)
            assert shown or rest == ""


def test_that_a_host_drains_is_said_everywhere(daemon: Daemon, box: Any) -> None:
    running = start(daemon, box, "sleep 300")
    try:
        drained = ctl(daemon, "drain")
        assert running["id"] in drained.stdout
        assert "executions that still run: 1" in drained.stderr
        words = "draining: no new work, 1 execution still runs"
        assert words in ctl(daemon, "ls").stderr
        doctor = started(daemon, "doctor", stdout=subprocess.PIPE, text=True)
        assert words in doctor.communicate(timeout=END_SECONDS)[0]
        terminal = Terminal(daemon, "top", "--every", "0.3s", cols=80)
        terminal.wait_for("draining: no new work")
        terminal.type("q")
        assert terminal.end() == 0
    finally:
        ctl(daemon, "undrain")
    assert ctl(daemon, "ls").stderr == ""


def test_top_on_a_small_screen_keeps_names_states_and_commands(daemon: Daemon, box: Any) -> None:
    start(daemon, box, ["sleep", "12345"])
    terminal = Terminal(daemon, "top", "--every", "0.3s", rows=24, cols=80)
    for text in ("NAME", "STATE", "box", "ready", "COMMAND", "sleep 12345"):
        terminal.wait_for(text)
    terminal.type("q")
    assert terminal.end() == 0


def test_nothing_is_asked_of_what_is_over(daemon: Daemon) -> None:
    """Lists cost what is there, and not what was."""
    for _ in range(3):
        daemon.release(daemon.create()["id"])
    box = daemon.create(name="here")
    daemon.execute(box["id"], "true")
    listed = daemon.ok("GET", "/v1/sandboxes?state=ready,suspended,releasing")["sandboxes"]
    assert [one["id"] for one in listed] == [box["id"]]
    assert ctl(daemon, "ls", "--ids").stdout.split() == [box["id"]]
    assert daemon.ok("GET", "/v1/executions?status=PENDING,RUNNING")["executions"] == []
    assert len(ctl(daemon, "ls", "--all").stdout.splitlines()) > 4
    daemon.release(box["id"])
    eventually(lambda: ctl(daemon, "ls", "--ids").stdout == "")
