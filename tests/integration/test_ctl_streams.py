# SPDX-License-Identifier: Apache-2.0
"""sandboxctl with standard streams that are closed, full or broken: a sentence and an exit code."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from sandboxd.ctl.main import COMMANDS, WITHOUT_DAEMON
from tests.harness import Daemon, running_daemon
from tests.integration.sandboxctl import COMMAND, END_SECONDS, environment, started

pytestmark = pytest.mark.timeout(180)
REFUSED, BROKEN_PIPE = 125, 141

# What each command is called with, where it prints something.
PRINTING = {
    "run": "run -q -- echo out",
    "exec": "exec -q box -- echo out",
    "create": "create --name streams-made",
    "ls": "ls",
    "ps": "ps -a",
    "logs": "logs box",
    "stats": "stats -o json",
    "inspect": "inspect box",
    "report": "report",
    "doctor": "doctor",
    "render-units": "render-units",
    "cp": "cp box:printed -",
    "update": "update box --pids 60 -o json",
    "attach": "attach --help",
    "wait": "wait --help",
    "kill": "kill --help",
    "rm": "rm --help",
    "top": "top --help",
    "events": "events --help",
    "suspend": "suspend --help",
    "resume": "resume --help",
    "drain": "drain --help",
    "undrain": "undrain --help",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(SANDBOX_CGROUP_MODE="off") as running:
        box = running.create(name="box")
        running.execute(box["id"], "echo printed | tee printed")
        yield running


def ctl(daemon: Daemon, command: str, streams: str) -> subprocess.CompletedProcess[bytes]:
    """sandboxctl as a shell starts it with `streams` redirected."""
    return subprocess.run(
        ["sh", "-c", f"{shlex.join(COMMAND)} {command} {streams}"], env=environment(daemon),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=END_SECONDS,
    )  # fmt: skip


def test_every_command_is_tried() -> None:
    assert PRINTING.keys() == COMMANDS.keys()
    assert WITHOUT_DAEMON <= PRINTING.keys()


@pytest.mark.parametrize("command", PRINTING.values(), ids=PRINTING)
@pytest.mark.parametrize(
    ("streams", "reason"),
    [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")],
)
def test_output_that_cannot_be_written_is_told(
    daemon: Daemon, command: str, streams: str, reason: str
) -> None:
    ended = ctl(daemon, command, streams)
    if command.startswith("create"):
        daemon.release("streams-made")
    said = ended.stderr.decode()
    assert ended.returncode == REFUSED, said
    assert said == f"sandboxctl: cannot write to standard output: {reason}\n"


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&-"])
@pytest.mark.parametrize("command", PRINTING.values(), ids=PRINTING)
def test_without_its_words_and_input_each_does_the_same(
    daemon: Daemon, command: str, streams: str
) -> None:
    usual = ctl(daemon, command, "")
    if command.startswith("create"):
        daemon.release("streams-made")
    ended = ctl(daemon, command, streams)
    if command.startswith("create"):
        daemon.release("streams-made")
    assert (ended.returncode, bool(ended.stdout)) == (usual.returncode, True)
    assert ended.stderr == b""


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", ">&- 2>&-", "2>&- >/dev/full"])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("run -- sh -c 'exit 7'", 7),
        ("exec box -- sh -c 'echo error >&2; exit 7'", 7),
        ("exec box -- sh -c 'kill -KILL $$'", 137),
        ("exec box -- no-such-program", 127),
        ("inspect nobodys", 125),
        ("exec nobodys -- true", 125),
        ("no-such-command", 125),
        ("run --no-such-option -- true", 125),
        ("run --memory 100000G -- true", 125),
    ],
)
def test_what_is_said_to_nobody_changes_no_exit_code(
    daemon: Daemon, command: str, code: int, streams: str
) -> None:
    ended = ctl(daemon, command, streams)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"", b"")


def test_a_program_runs_on_where_its_output_is_lost(daemon: Daemon) -> None:
    ended = ctl(daemon, "exec box -- sh -c 'echo out; sleep 1; echo out; exit 3'", ">/dev/full")
    said = ended.stderr.decode()
    assert ended.returncode == REFUSED
    assert "exited with code 3" in said
    assert said.count("cannot write to standard output: No space left on device\n") == 1


@pytest.mark.parametrize(
    ("command", "code"),
    [("ls", BROKEN_PIPE), ("doctor", BROKEN_PIPE), ("exec -q box -- sh -c 'echo out; exit 5'", 5)],
)
def test_a_reader_that_has_gone_is_no_error_to_tell(
    daemon: Daemon, command: str, code: int
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        argv = shlex.split(command)
        gone = started(daemon, *argv, stdout=writing, stderr=subprocess.PIPE)
        _, said = gone.communicate(timeout=END_SECONDS)
    finally:
        os.close(writing)
    assert (gone.returncode, said) == (code, b"")


def test_closed_standard_input_is_refused_where_it_is_to_be_passed_on(daemon: Daemon) -> None:
    ended = ctl(daemon, "exec -i box -- cat", "<&-")
    assert ended.returncode == REFUSED
    assert b"cannot pass standard input on: it is closed" in ended.stderr


def test_a_pipe_that_does_not_block_is_waited_for(daemon: Daemon) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    program = ["sh", "-c", "yes | head -c 3000000; yes | head -c 300000 >&2"]
    argv = ["exec", "-q", "box", "--", *program]
    with started(daemon, *argv, stdout=writing, stderr=writing) as process:
        os.close(writing)
        with open(reading, "rb") as pipe:
            data = pipe.read()
        assert process.wait(END_SECONDS) == 0
    assert data == b"y\n" * 1650000
