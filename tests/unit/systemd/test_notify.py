# SPDX-License-Identifier: Apache-2.0
"""Both ways to talk to the manager, against a socket of the test's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from sandboxd.systemd import notify

# It has no wheels: only where the distribution's package is, as in the systemd machine.
KINDS = ["plain", "pystemd"] if find_spec("pystemd") else ["plain"]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = str(tmp_path / "notify")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listener:
        listener.bind(path)
        listener.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.setenv("WATCHDOG_USEC", "1500000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        yield listener


@pytest.fixture(params=KINDS)
def notifier(request: pytest.FixtureRequest, manager: socket.socket) -> notify.Notifier:
    return new_notifier(request.param)


def new_notifier(kind: str) -> notify.Notifier:
    if kind == "plain":
        return notify.PlainNotifier(dict(os.environ))
    return notify.PystemdNotifier(import_module("pystemd.daemon"))


def test_messages(notifier: notify.Notifier, manager: socket.socket) -> None:
    notifier.send(READY="1", STATUS="12 sandboxes")
    assert set(manager.recv(4096).decode().split("\n")) == {"READY=1", "STATUS=12 sandboxes"}
    notifier.send(WATCHDOG="1")
    assert manager.recv(4096) == b"WATCHDOG=1"
    notifier.send(STOPPING="1", STATUS="bye")
    assert set(manager.recv(4096).decode().split("\n")) == {"STOPPING=1", "STATUS=bye"}


def test_watchdog_interval(notifier: notify.Notifier) -> None:
    assert notifier.watchdog_seconds() == 1.5


def test_no_watchdog_of_another_process(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert new_notifier("plain").watchdog_seconds() is None


@pytest.mark.parametrize("kind", KINDS)
def test_no_manager(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"):
        monkeypatch.delenv(name, raising=False)
    silent = new_notifier(kind)
    silent.send(READY="1", STATUS="nobody listens")
    assert silent.watchdog_seconds() is None
    assert notify.listen_sockets(silent) == []


def test_abstract_address(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"sandboxd-test-{os.getpid()}"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(5)
        notify.PlainNotifier({"NOTIFY_SOCKET": f"@{name}"}).send(READY="1")
        assert listener.recv(4096) == b"READY=1"


LISTEN = """
import os, sys
sys.path[:0] = {path!r}
from importlib import import_module
from sandboxd.systemd import notify
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDS"] = "1"
kind = {kind!r}
notifier = (notify.PlainNotifier(dict(os.environ)) if kind == "plain"
            else notify.PystemdNotifier(import_module("pystemd.daemon")))
(handed,) = notify.listen_sockets(notifier)
assert not os.get_inheritable(handed.fileno())
print(handed.getsockname())
"""


@pytest.mark.parametrize("kind", KINDS)
def test_sockets_handed_over(kind: str, tmp_path: Path) -> None:
    new_notifier(kind)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(str(tmp_path / "api"))
        listener.listen()
        program = LISTEN.format(path=sys.path, kind=kind)
        # The shell puts it where a service gets it: at descriptor 3.
        shell = f'exec "$0" -c "$1" 3<&{listener.fileno()}'
        done = subprocess.run(
            ["/bin/bash", "-c", shell, sys.executable, program],
            pass_fds=[listener.fileno()], capture_output=True, text=True,
        )  # fmt: skip
        assert done.stderr == ""
        assert done.stdout.strip() == str(tmp_path / "api")
