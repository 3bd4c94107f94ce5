# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process: ready file, sockets handed over, private ones, and the end of all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.contract.probes import eventually, executions, find, printed, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.process import (
    COMMAND,
    START_SECONDS,
    answers,
    arguments,
    environment,
    refusal,
    run_daemon,
    started,
    unstarted,
)

# The descriptor gets its number, and the process that will be the daemon its pid.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""
MEMORY = {"SANDBOX_MEMORY_LIMIT_BYTES": "64M"}
daemon = daemon_fixture(partial(unstarted, **MEMORY), scope="function")


def helpers(daemon: Daemon) -> list[int]:
    """Processes that were started with this daemon's runtime directory."""
    return find(str(daemon.runtime))


def test_the_ready_file_is_there_only_while_ready(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "ready"
    file.write_text("of an earlier life")
    daemon.environment = {**MEMORY, "SANDBOX_READY_FILE": str(file)}
    daemon.start()
    assert "earlier" not in file.read_text()
    daemon.kill()
    assert file.exists()
    # Gone as soon as start-up begins, and back with readiness.
    inode = file.stat().st_ino
    daemon.start()
    assert file.stat().st_ino != inode or "earlier" not in file.read_text()
    assert daemon.stop() == 0
    assert not file.exists()


@pytest.mark.parametrize(
    "settings",
    [{"SANDBOX_MEMORY_LIMIT_BYTES": "100T"}, {"SANDBOX_ISOLATION": "strict"},
     {"SANDBOX_PIDS_LIMIT": "x"}],
    ids=["does not fit", "cannot be had", "malformed"],
)  # fmt: skip
def test_a_refused_start_leaves_no_ready_file(
    daemon: Daemon, tmp_path: Path, settings: dict[str, str]
) -> None:
    file = tmp_path / "ready"
    file.write_text("of an earlier life")
    refusal(daemon, SANDBOX_READY_FILE=str(file), **settings)
    assert not file.exists()


def test_a_ready_file_that_cannot_be_made_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "ready"
    status, words = run_daemon(daemon, SANDBOX_READY_FILE=str(path))
    assert status != 0
    assert str(path) in words
    assert "Traceback" not in words


def test_a_socket_handed_over_is_served_and_left(daemon: Daemon) -> None:
    """As systemd does: the listening socket is descriptor 3, and waits before there is a daemon."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(daemon.socket)
        listening.listen(16)
        with socket.socket(socket.AF_UNIX) as early:
            early.connect(daemon.socket)
            early.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            other = daemon.runtime / "other.sock"
            served = arguments(daemon)
            served[served.index(daemon.socket)] = str(other)
            hand = [sys.executable, "-c", HAND_OVER, str(listening.fileno())]
            command = [*hand, *COMMAND, *served]
            with started(
                daemon, command, env=environment(**MEMORY), stdin=subprocess.DEVNULL,
                pass_fds=(listening.fileno(),),
            ) as process:  # fmt: skip
                early.settimeout(START_SECONDS)
                assert early.recv(4096).startswith(b"HTTP/1.1 200")
                made = daemon.create()
                assert daemon.execute(made["id"], ["echo", "hi"])["stdout"] == "hi\n"
                code = "ls -l /proc/self/fd | grep -c socket || true"
                assert daemon.execute(made["id"], code)["stdout"].strip() == "0"
                assert not other.exists()
                process.terminate()
                assert process.wait(START_SECONDS) == 0
        # It is systemd's, not the daemon's, to remove.
        assert os.path.exists(daemon.socket)


def test_listen_fds_of_another_process_are_not_taken(daemon: Daemon) -> None:
    settings = environment(LISTEN_PID="1", LISTEN_FDS="1", **MEMORY)
    with started(daemon, [*COMMAND, *arguments(daemon)], env=settings, stdin=subprocess.DEVNULL):
        assert answers(daemon.socket)


def test_stop_all_ends_the_work_of_a_stopped_daemon(daemon: Daemon) -> None:
    daemon.start()
    made = daemon.create(name="left")
    running = start(daemon, made, "trap '' TERM; echo up; sleep 94321 & sleep 94321; true")
    printed(daemon, running, b"up")
    daemon.stop()
    assert find("sleep 94321")
    assert run_daemon(daemon, "--stop-all")[0] == 0
    assert find("sleep 94321") == []
    eventually(lambda: not helpers(daemon))
    assert not os.path.exists(daemon.socket)
    assert run_daemon(daemon, "--stop-all")[0] == 0
    daemon.start()
    assert daemon.ok("GET", f"/v1/sandboxes/{made['id']}")["state"] == "released"
    ended = daemon.ok("GET", f"{executions(made)}/{running['id']}")
    assert (ended["status"], ended["stdout"]) == ("KILLED", "up\n")


@pytest.mark.parametrize("way", ["end of input", "SIGTERM"])
def test_a_private_daemon_ends_with_all_it_started(daemon: Daemon, way: str) -> None:
    command = [*COMMAND, *arguments(daemon), "--private"]
    with started(daemon, command, env=environment(**MEMORY), stdin=subprocess.PIPE) as process:
        made = daemon.create()
        running = start(daemon, made, "echo up; sleep 93210 & sleep 93210; true")
        printed(daemon, running, b"up")
        if way == "SIGTERM":
            process.terminate()
        else:
            assert process.stdin is not None
            process.stdin.close()
        assert process.wait(START_SECONDS) == 0
        assert find("sleep 93210") == []
    eventually(lambda: not helpers(daemon))
    assert not os.path.exists(daemon.socket)
    assert not (daemon.state / "sandboxes" / made["id"] / "home").exists()
