# SPDX-License-Identifier: Apache-2.0
"""sandboxctl exec -it on a terminal of ours, by hand and by tmux."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.conftest import requires_program
from tests.contract.probes import eventually
from tests.harness import ROOT, Daemon, running_daemon
from tests.integration.sandboxctl import COMMAND, ctl
from tests.integration.terminal import END_SECONDS, Terminal

pytestmark = pytest.mark.timeout(180)
SHELL = ["env", "PS1=$ ", "sh"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(SANDBOX_CGROUP_MODE="off") as running:
        running.create(name="box")
        yield running


@pytest.fixture(autouse=True)
def nothing_runs_on(daemon: Daemon) -> Iterator[None]:
    """One test's failure is not the next one's."""
    yield
    for one in daemon.ok("GET", "/v1/executions?status=RUNNING")["executions"]:
        daemon.ok("POST", f"/v1/sandboxes/box/executions/{one['id']}/kill", {})


def test_a_shell_on_a_terminal(daemon: Daemon) -> None:
    terminal = Terminal(daemon, "exec", "-it", "box", "--", *SHELL)
    terminal.wait_for("$ ")
    assert terminal.is_raw()
    terminal.type("stty size; echo $TERM; tty\r")
    terminal.wait_for("30 90\r\nvt100\r\n/dev/pts/")
    terminal.resize(40, 100)
    terminal.process.send_signal(signal.SIGWINCH)
    # The size arrives when the program's own SIGWINCH does.
    terminal.type("until [ \"$(stty size)\" = '40 100' ]; do sleep 0.1; done; echo re''sized\r")
    terminal.wait_for("resized")
    # Only a program that runs already is sure to die of it: a shell that becomes one may take the
    # signal and then be gone.
    terminal.type("cat\r")
    terminal.type("twice\r")
    terminal.wait_for("twice\r\ntwice\r\n")
    terminal.type("\x03")
    terminal.wait_for("$ ")
    terminal.type("exit 7\r")
    assert terminal.process.wait(END_SECONDS) == 7
    assert not terminal.is_raw()
    terminal.end()


def test_what_is_typed_before_the_program_runs_is_for_it(daemon: Daemon) -> None:
    terminal = Terminal(daemon, "exec", "-it", "box", "--", *SHELL)
    # Nothing of it is on the screen yet: sandboxctl itself is only starting.
    terminal.type("echo typed a''head\r")
    terminal.wait_for("typed ahead\r\n")
    terminal.type("exit\r")
    assert terminal.end() == 0


@pytest.mark.parametrize("verb", [["exec", "-it", "box"], ["run", "-it"]])
def test_a_person_has_no_default_timeout(daemon: Daemon, verb: list[str]) -> None:
    """But what the server allows at most, or what was asked for."""
    terminal = Terminal(daemon, *verb, "--", *SHELL)
    terminal.wait_for("$ ")
    [running] = daemon.ok("GET", "/v1/executions?status=RUNNING")["executions"]
    assert running["limits"]["timeout_seconds"] == 7 * 86400
    terminal.type("exit\r")
    assert terminal.end() == 0


def test_a_smaller_maximum_is_what_a_person_gets() -> None:
    settings = {"SANDBOX_TIMEOUT_SECONDS": "100", "SANDBOX_MAX_TIMEOUT_SECONDS": "1000"}
    with running_daemon(SANDBOX_CGROUP_MODE="off", **settings) as daemon:
        daemon.create(name="box")
        terminal = Terminal(daemon, "exec", "-it", "box", "--", *SHELL)
        terminal.wait_for("$ ")
        [running] = daemon.ok("GET", "/v1/executions?status=RUNNING")["executions"]
        assert running["limits"]["timeout_seconds"] == 1000
        terminal.type("exit\r")
        assert terminal.end() == 0
        daemon.release("box")


@pytest.mark.parametrize("given", ["to the program", "to the sandbox"])
def test_a_timeout_that_was_given_ends_a_person_s_program_and_is_told(
    daemon: Daemon, given: str
) -> None:
    daemon.create(name="brief", limits={"timeout_seconds": 3 if "sandbox" in given else 300})
    options = ["--timeout", "3s"] if "program" in given else []
    terminal = Terminal(daemon, "exec", "-it", *options, "brief", "--", *SHELL)
    whose = "the sandbox's" if "sandbox" in given else "its own"
    terminal.wait_for(f"sandboxctl: TIMED_OUT (SANDBOX_TIMEOUT, {whose} limit of 3 s)")
    assert terminal.end() == 137
    daemon.release("brief")


def test_it_is_left_by_keys_and_goes_on(daemon: Daemon) -> None:
    terminal = Terminal(daemon, "exec", "-it", "box", "--", *SHELL)
    terminal.wait_for("$ ")
    terminal.type("\x10\x11")
    terminal.wait_for("goes on without you; to come back: sandboxctl attach ")
    assert terminal.process.wait(END_SECONDS) == 0
    assert not terminal.is_raw()
    terminal.end()
    [running] = daemon.ok("GET", "/v1/executions?status=RUNNING")["executions"]
    daemon.ok("POST", f"/v1/sandboxes/box/executions/{running['id']}/kill", {})


def test_a_terminal_that_hangs_up_ends_its_program(daemon: Daemon) -> None:
    terminal = Terminal(daemon, "exec", "-it", "box", "--", *SHELL)
    terminal.wait_for("$ ")
    terminal.process.send_signal(signal.SIGHUP)
    assert terminal.process.wait(END_SECONDS) == 128 + signal.SIGHUP
    terminal.end()
    eventually(lambda: not daemon.ok("GET", "/v1/executions?status=RUNNING")["executions"])


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_restart_of_the_daemon_loses_no_key(way: str) -> None:
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        daemon.create(name="box")
        terminal = Terminal(daemon, "exec", "-it", "box", "--", *SHELL)
        terminal.wait_for("$ ")
        terminal.type("echo be''fore\r")
        terminal.wait_for("before\r\n$ ")
        if way == "stop":
            assert daemon.stop() == 0
            terminal.type("echo typed a''way\r")
            daemon.start()
            terminal.wait_for("typed away\r\n$ ")
        else:
            daemon.kill()
            daemon.start()
        terminal.type("echo st''ill here\r")
        terminal.wait_for("echo st''ill here\r\nstill here")
        terminal.type("exit\r")
        assert terminal.end() == 0
        daemon.release("box")


def test_the_keys_that_leave_work_without_a_daemon() -> None:
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        daemon.create(name="box")
        terminal = Terminal(daemon, "exec", "-it", "box", "--", *SHELL)
        terminal.wait_for("$ ")
        assert daemon.stop() == 0
        terminal.type("x\x10\x11")
        terminal.wait_for("goes on without you")
        assert terminal.end() == 0
        daemon.start()
        daemon.release("box")


def test_without_a_terminal_none_is_given(daemon: Daemon) -> None:
    refused = ctl(daemon, "exec", "-it", "box", "--", "true", code=125)
    assert "leave -t out" in refused.stderr


def test_by_tmux(daemon: Daemon) -> None:
    requires_program("tmux")
    socket, settings = str(daemon.runtime / "tmux"), daemon.runtime / "tmux.conf"
    settings.write_text("set -g status off\n")

    def tmux(*argv: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", socket, "-f", str(settings), *argv],
            capture_output=True, text=True, timeout=END_SECONDS, check=True,
        )  # fmt: skip
        return done.stdout

    def shown(text: str) -> None:
        eventually(lambda: text in tmux("capture-pane", "-p"), END_SECONDS)

    inside = shlex.join([*COMMAND, "exec", "-it", "box", "--", *SHELL])
    environment = [f"PYTHONPATH={ROOT}", f"SANDBOXD_SOCKET={daemon.socket}"]
    tmux("new-session", "-d", "-x", "77", "-y", "22", "-e", environment[0],
         "-e", environment[1], f"{inside}; echo ended: $?; sleep 60")  # fmt: skip
    try:
        shown("$")
        tmux("send-keys", "stty size; echo $((6 * 7))", "Enter")
        shown("\n22 77\n42\n")
        tmux("resize-window", "-x", "66", "-y", "20")
        tmux("send-keys", "until stty size | grep 66; do sleep 0.1; done", "Enter")
        shown("\n20 66\n")
        tmux("send-keys", "exit 3", "Enter")
        shown("ended: 3")
    finally:
        tmux("kill-server")
