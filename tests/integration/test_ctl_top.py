# SPDX-License-Identifier: Apache-2.0
"""sandboxctl stats and top with a real daemon."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from sandboxd.client import Sandbox
from tests.fixtures import daemon_fixture
from tests.harness import Daemon, running_daemon
from tests.integration.sandboxctl import ctl
from tests.integration.terminal import Terminal

pytestmark = pytest.mark.timeout(180)
BUSY = "x = bytearray(50 << 20)\nwhile True: pass"
daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off")


@pytest.fixture(scope="module")
def busy(daemon: Daemon) -> Iterator[Sandbox]:
    limits = {"memory_bytes": "200M", "cpus": 1}
    with Sandbox.create("busy", limits=limits, socket=daemon.socket) as sandbox:
        handle = sandbox.run(["python3", "-c", BUSY], background=True)
        yield sandbox
        handle.kill()


def test_stats_of_all_and_of_one(daemon: Daemon, busy: Sandbox) -> None:
    with Sandbox.create("idle", socket=daemon.socket):
        listed = ctl(daemon, "stats").stdout.splitlines()
        assert listed[0].split()[:3] == ["SANDBOX", "NAME", "STATE"]
        assert [line.split()[1] for line in listed[1:]] == ["busy", "idle"]
        [only] = ctl(daemon, "stats", "busy").stdout.splitlines()[1:]
        assert "/200 MiB" in only
        assert only.split()[3].endswith("/1")
        [metrics] = json.loads(ctl(daemon, "stats", "-o", "json", "busy").stdout)
        assert metrics["sandbox_id"] == busy.id
        assert metrics["executions"]["running"] == 1
    ctl(daemon, "stats", "nosuch", code=125)
    assert busy.metrics()["executions"] == {"running": 1, "total": 1}


def test_top_is_live_and_sortable(daemon: Daemon, busy: Sandbox) -> None:
    terminal = Terminal(daemon, "top", "--every", "0.3s", cols=200)
    terminal.wait_for("by cpu;")
    terminal.wait_for("busy")
    terminal.wait_for("EXECUTION")
    terminal.wait_for("python3 -c")
    terminal.type("m")
    terminal.wait_for("by memory;")
    terminal.wait_for("%")
    busy.run("exit 9")
    terminal.wait_for("exited with code 9")
    terminal.wait_for("VERDICT")
    terminal.resize(6, 40)
    terminal.wait_for("by memory;")
    terminal.type("q")
    assert terminal.end() == 0


def test_top_goes_on_at_the_next_daemon() -> None:
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        daemon.create(name="before")
        terminal = Terminal(daemon, "top", "--every", "0.3s", cols=200)
        terminal.wait_for("before")
        assert daemon.stop() == 0
        terminal.wait_for("sandboxd is away")
        terminal.type("m")
        terminal.wait_for("by memory;")
        daemon.start()
        daemon.create(name="after")
        terminal.wait_for("after")
        terminal.type("q")
        assert terminal.end() == 0
        daemon.release("before")
        daemon.release("after")


def test_top_without_a_terminal_says_what_else(daemon: Daemon) -> None:
    assert "sandboxctl stats" in ctl(daemon, "top", code=125).stderr


@pytest.mark.parametrize("words", [["ps", "busy"], ["ls", "--name", "busy"]])
def test_a_list_fits_the_terminal(daemon: Daemon, busy: Sandbox, words: list[str]) -> None:
    terminal = Terminal(daemon, *words, cols=60)
    terminal.wait_for("\n")
    terminal.wait_for("busy")
    terminal.wait_for("\n")
    # Header and row took a line each.
    assert terminal.end() == 0
    assert terminal.screen.strip() == b""


def test_what_is_no_terminal_gets_whole_lines(daemon: Daemon, busy: Sandbox) -> None:
    ran = ctl(daemon, "stats", "busy")
    assert max(map(len, ran.stdout.splitlines())) > 60, "but not where there is none"
    assert "\x1b" not in ran.stdout


def test_a_signal_gives_the_terminal_back(daemon: Daemon, busy: Sandbox) -> None:
    terminal = Terminal(daemon, "top", "--every", "0.3s", cols=200)
    before = terminal.modes()
    terminal.wait_for("\x1b[?1049h")
    terminal.wait_for("busy")
    assert terminal.modes() != before
    os.kill(terminal.process.pid, signal.SIGTERM)
    # The cursor, and the screen that was there before.
    terminal.wait_for("\x1b[?25h")
    terminal.wait_for("\x1b[?1049l")
    terminal.process.wait(60)
    assert terminal.modes() == before
    assert terminal.end() == 128 + signal.SIGTERM
