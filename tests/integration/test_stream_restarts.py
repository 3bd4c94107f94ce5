# SPDX-License-Identifier: Apache-2.0
"""Open input, terminals and followed output outlive their daemon."""

from __future__ import annotations

import http.client
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from threading import Event
from typing import Any

import pytest

from sandboxd.client import Sandbox
from tests.contract.probes import eventually, output, path_of, printed, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.sandboxctl import END_SECONDS, started
from tests.websocket import BINARY, attached

WAYS = ("stop", "kill")
daemon = daemon_fixture(scope="function", SANDBOX_MEMORY_LIMIT_BYTES="64M")


def restart(daemon: Daemon, way: str) -> None:
    if way == "stop":
        assert daemon.stop() == 0
    else:
        daemon.kill()
    daemon.start()


def feed(daemon: Daemon, running: Any, data: bytes) -> None:
    assert daemon.ok("POST", f"{path_of(running)}/stdin", data) == {"written_bytes": len(data)}


@pytest.mark.parametrize("way", WAYS)
def test_input_stays_open_and_what_was_taken_arrives(daemon: Daemon, way: str) -> None:
    made = daemon.create()
    running = start(daemon, made, "mkfifo go; echo made; read x < go; exec cat", stdin_open=True)
    printed(daemon, running, b"made\n")
    # Taken, though nobody has read it, by the time the daemon ends.
    feed(daemon, running, b"x" * 60_000)
    restart(daemon, way)
    daemon.execute(made["id"], "echo > go")
    feed(daemon, running, b"after")
    printed(daemon, running, b"after")
    assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
    assert daemon.request("POST", f"{path_of(running)}/stdin/close").status == 204
    ended = daemon.wait(running)
    assert (ended["status"], ended["exit_code"]) == ("EXITED", 0)
    assert output(daemon, running) == b"made\n" + b"x" * 60_000 + b"after"


@pytest.mark.parametrize("way", WAYS)
def test_a_terminal_outlives_its_daemon(daemon: Daemon, way: str) -> None:
    made = daemon.create()
    script = (
        "trap 'stty size; told=1' WINCH; echo up; while :; do told=; if read x; then echo got $x; "
        'elif [ -z "$told" ]; then echo end; exit; fi; done'
    )
    running = start(daemon, made, script, tty={"rows": 3, "cols": 4})
    printed(daemon, running, b"up\r\n")
    feed(daemon, running, b"one\n")
    printed(daemon, running, b"got one\r\n")
    restart(daemon, way)
    feed(daemon, running, b"two\n")
    printed(daemon, running, b"got two\r\n")
    body = {"rows": 5, "cols": 6}
    assert daemon.request("POST", f"{path_of(running)}/resize", body).status == 204
    printed(daemon, running, b"5 6\r\n")
    assert daemon.request("POST", f"{path_of(running)}/stdin/close").status == 204
    printed(daemon, running, b"end\r\n")
    assert daemon.wait(running)["exit_code"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_follower_goes_on_at_the_next_daemon(daemon: Daemon, way: str) -> None:
    made = daemon.create()
    count = "n=0; while [ $n -lt 100 ]; do echo $n; n=$((n + 1)); sleep 0.05; done"
    running = start(daemon, made, count)
    taken = b""
    with daemon.stream(f"{path_of(running)}/output?follow=true") as answer:
        while b"20\n" not in taken:
            taken += answer.readline()
        if way == "stop":
            assert daemon.stop() == 0
        else:
            daemon.kill()
        # The end of the daemon does not look like the end of the output.
        with pytest.raises((http.client.IncompleteRead, ConnectionError)) as broken:
            answer.read()
        if isinstance(broken.value, http.client.IncompleteRead):
            taken += broken.value.partial
    daemon.start()
    target = f"{path_of(running)}/output?follow=true&offset={len(taken)}"
    with daemon.stream(target) as answer:
        taken += answer.read()
    assert taken == b"".join(b"%d\n" % n for n in range(100))


def test_a_writer_that_waits_is_told_how_far_it_came_when_the_daemon_stops(daemon: Daemon) -> None:
    made = daemon.create()
    script = "dd bs=1 count=3 2>/dev/null; exec sleep 300"
    running = start(daemon, made, script, stdin_open=True)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(daemon.request, "POST", f"{path_of(running)}/stdin", b"x" * 500_000)
        printed(daemon, running, b"xxx")
        assert daemon.stop() == 0
        answer = sent.result()
    assert (answer.status, answer.code) == (503, "DRAINING")
    assert 3 <= answer.json["error"]["details"]["written_bytes"] < 100_000
    daemon.start()


@pytest.mark.parametrize("way", WAYS)
def test_who_was_attached_comes_again_and_misses_nothing(daemon: Daemon, way: str) -> None:
    made = daemon.create()
    script = 'echo up; while read x; do echo "got $x"; done; exit 6'
    running = start(daemon, made, script, stdin_open=True)
    target = f"{path_of(running)}/attach"
    with attached(daemon.socket, target) as it:
        it.send(BINARY, b"one\n")
        seen = len(it.until(b"got one\n"))
        if way == "stop":
            assert daemon.stop() == 0
            # Going away: nothing of the execution has ended.
            assert it.to_the_end() == ({1: b"", 2: b""}, None, 1001)
        else:
            daemon.kill()
    daemon.start()
    with attached(daemon.socket, f"{target}?stdout_offset={seen}") as it:
        it.send(BINARY, b"two\n")
        assert it.until(b"got two\n") == b"got two\n"
        it.order(type="close_stdin")
        _, last, code = it.to_the_end()
    assert (last["execution"]["exit_code"], code) == (6, 1000)


def piped(daemon: Daemon, *argv: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return started(daemon, *argv, stdin=pipe, stdout=pipe, stderr=pipe)


def connections(process: subprocess.Popen[bytes]) -> int:
    descriptors = f"/proc/{process.pid}/fd"
    found = [os.readlink(f"{descriptors}/{name}") for name in os.listdir(descriptors)]
    return sum(link.startswith("socket:") for link in found)


@pytest.mark.parametrize("way", WAYS)
def test_sandboxctl_passes_input_on_to_the_next_daemon(daemon: Daemon, way: str) -> None:
    daemon.create(name="box")
    with piped(daemon, "exec", "-q", "-i", "box", "--", "cat") as feeding:
        assert feeding.stdin is not None
        assert feeding.stdout is not None
        for word in (b"one\n", b"two\n"):
            feeding.stdin.write(word)
            feeding.stdin.flush()
            assert feeding.stdout.readline() == word
        # Two that follow output; none is open for input that does not come.
        eventually(lambda: connections(feeding) == 2)
        if way == "stop":
            assert daemon.stop() == 0
        else:
            daemon.kill()
        feeding.stdin.write(b"away\n")
        feeding.stdin.flush()
        daemon.start()
        assert feeding.stdout.readline() == b"away\n"
        assert feeding.communicate(b"three\n", END_SECONDS) == (b"three\n", b"")
        assert feeding.returncode == 0


def test_sandboxctl_sends_the_next_daemon_what_a_stopping_one_did_not_take(daemon: Daemon) -> None:
    made = daemon.create(name="box")
    script = "mkfifo go; echo made; read x < go; exec sha256sum"
    data = os.urandom(3_000_000)
    with piped(daemon, "exec", "-q", "-i", "box", "--", "sh", "-c", script) as feeding:
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(feeding.communicate, data, END_SECONDS)
            eventually(lambda: connections(feeding) == 3)
            assert feeding.poll() is None
            assert daemon.stop() == 0
            daemon.start()
            daemon.execute(made["id"], "echo > go")
            out, said = sent.result()
    assert out.split() == [b"made", sha256(data).hexdigest().encode(), b"-"]
    assert (feeding.returncode, said) == (0, b"")


def test_input_of_the_client_goes_on_at_the_next_daemon(daemon: Daemon) -> None:
    data = os.urandom(3_000_000)
    script, made = "mkfifo go; echo made; read x < go; exec sha256sum", Event()
    with ThreadPoolExecutor(1) as pool, Sandbox.create("box", socket=daemon.socket) as box:
        ran = pool.submit(box.run, script, stdin=data, on_stdout=lambda _: made.set())
        assert made.wait(END_SECONDS)
        assert daemon.stop() == 0
        daemon.start()
        box.run("echo > go")
        assert ran.result(END_SECONDS).stdout.split() == ["made", sha256(data).hexdigest(), "-"]


def test_a_command_whose_input_broke_off_is_killed_by_the_next_daemon(daemon: Daemon) -> None:
    daemon.create(name="box")
    with piped(daemon, "exec", "-i", "box", "--", "sh", "-c", "echo up; exec sleep 300") as feeding:
        assert feeding.stdout is not None
        assert feeding.stdout.readline() == b"up\n"
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(feeding.communicate, b"x" * 3_000_000, END_SECONDS)
            # The input's, beside two that follow output.
            eventually(lambda: connections(feeding) == 3)
            daemon.kill()
            daemon.start()
            _, said = sent.result()
    assert b"cannot tell how much input the program got" in said
    assert b"KILLED" in said
    assert feeding.returncode == 137


def test_no_descriptor_is_left_behind(daemon: Daemon) -> None:
    made = daemon.create()
    assert daemon.process is not None
    directory = f"/proc/{daemon.process.pid}/fd"

    def once() -> None:
        for body in ({"stdin_open": True}, {"tty": {"rows": 2, "cols": 2}}):
            running = start(daemon, made, ["cat"], **body)
            feed(daemon, running, b"line\n")
            printed(daemon, running, b"line")
            daemon.request("POST", f"{path_of(running)}/stdin/close")
            daemon.wait(running)

    once()
    before = len(os.listdir(directory))
    for _ in range(20):
        once()
    assert len(os.listdir(directory)) <= before + 1
