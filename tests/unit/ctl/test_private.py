# SPDX-License-Identifier: Apache-2.0
"""The private daemon's start and end, with a stand-in for the daemon."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.ctl import private
from sandboxd.ctl.interrupts import Interrupted, Interrupts
from sandboxd.ctl.private import PrivateDaemonFailed, private_daemon

NOTIFY = """
import os, socket, sys
def notify(text):
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.sendto(text, os.environ["NOTIFY_SOCKET"])
assert os.getsid(0) == os.getpid()
assert "SANDBOXD_SOCKET" not in os.environ and "LISTEN_FDS" not in os.environ
"""
GOOD = NOTIFY + 'notify(b"STATUS=starting"); notify(b"STATUS=a\\nREADY=1"); sys.stdin.read()'
DEAD = NOTIFY + 'print("no room", file=sys.stderr); sys.exit(3)'
DEAF = NOTIFY + "sys.stdin.read()"
STUBBORN = GOOD + "\nimport signal; signal.pause()"
Daemon = Callable[[str], None]


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Daemon:
    """Return a function that makes a program the daemon; directories go below tmp_path."""
    monkeypatch.setattr(private, "_state_parent", lambda: str(tmp_path))
    monkeypatch.setattr(private, "_runtime_parent", lambda: str(tmp_path))
    monkeypatch.setenv("SANDBOXD_SOCKET", "/nowhere")
    monkeypatch.setenv("LISTEN_FDS", "1")

    def become(program: str) -> None:
        monkeypatch.setattr(private, "_DAEMON", [sys.executable, "-c", program])

    return become


def test_it_is_ready_then_ends_with_its_standard_input(daemon: Daemon, tmp_path: Path) -> None:
    daemon(GOOD)
    with Interrupts() as interrupts, private_daemon(interrupts) as client:
        assert client.path.endswith("sandboxd.sock")
        assert len(list(tmp_path.iterdir())) == 2
        modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert modes == ({0o700, 0o711} if os.geteuid() == 0 else {0o700})
    assert list(tmp_path.iterdir()) == []


def test_one_that_ends_is_reported_with_what_it_said(daemon: Daemon, tmp_path: Path) -> None:
    daemon(DEAD)
    with Interrupts() as interrupts, pytest.raises(PrivateDaemonFailed) as failed:
        private_daemon(interrupts).__enter__()
    assert "ended with code 3" in failed.value.message
    assert "no room" in (failed.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_not_ready_in_time_is_given_up(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "_START_SECONDS", 0.3)
    daemon(DEAF)
    with Interrupts() as interrupts, pytest.raises(PrivateDaemonFailed, match="not ready"):
        private_daemon(interrupts).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_one_that_does_not_end_is_killed(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(private, "_STOP_SECONDS", 0.2)
    monkeypatch.setattr(private, "_TERMINATE_SECONDS", 0.2)
    daemon(STUBBORN.replace("import signal;", "import signal; signal.signal(15, signal.SIG_IGN);"))
    with Interrupts() as interrupts, private_daemon(interrupts):
        pass
    assert "SIGKILL" in capsys.readouterr().err


def test_a_signal_while_it_starts_ends_it(daemon: Daemon, tmp_path: Path) -> None:
    daemon(NOTIFY + f"os.kill({os.getpid()}, 15); sys.stdin.read()")
    with Interrupts() as interrupts, pytest.raises(Interrupted) as interrupted:
        private_daemon(interrupts).__enter__()
    assert interrupted.value.number == signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def raise_held(interrupts: Interrupts, reached: list[str], *numbers: int) -> None:
    with interrupts.held():
        for number in numbers:
            os.kill(os.getpid(), number)
        reached.append(f"end after {len(numbers)}")


def test_a_held_signal_comes_at_the_end_and_a_second_one_at_once() -> None:
    reached: list[str] = []
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted):
            raise_held(interrupts, reached, signal.SIGTERM)
        with pytest.raises(Interrupted):
            raise_held(interrupts, reached, signal.SIGTERM, signal.SIGINT)
        raise_held(interrupts, reached)
    assert reached == ["end after 1", "end after 0"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
