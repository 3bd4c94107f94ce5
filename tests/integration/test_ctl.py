# SPDX-License-Identifier: Apache-2.0
"""sandboxctl with a real daemon: one that runs, and private ones for a call."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.client.calls import DEFAULT_SOCKET
from tests.conftest import unmet
from tests.fixtures import daemon_fixture
from tests.harness import ROOT, Daemon

pytestmark = pytest.mark.timeout(180)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "SANDBOX_CGROUP_MODE": "off"}
ENVIRONMENT.pop("SANDBOXD_SOCKET", None)
END_SECONDS = 90.0
# Others may run the same tests on this host at the same time.
PREFIX = f"sandboxd-run-{os.getpid()}-"
SLEEP_SECONDS = str(100_000 + os.getpid())
daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off")


def command(*argv: str) -> list[str]:
    """sandboxctl, with a name for its private daemons' directories that is this run's own."""
    script = (
        "import sys; from sandboxd.ctl import main, private;"
        f"private._PREFIX = {PREFIX!r}; sys.exit(main.main())"
    )
    return [sys.executable, "-P", "-c", script, *argv]


def ctl(*argv: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**ENVIRONMENT, **options.pop("environment", {})}
    options.setdefault("stdin", None if "input" in options else subprocess.DEVNULL)
    if options["stdin"] is None:
        del options["stdin"]
    return subprocess.run(
        command(*argv), env=environment, capture_output=True, timeout=END_SECONDS, **options
    )


@pytest.fixture
def private(tmp_path: Path) -> Iterator[None]:
    """A host where no daemon answers, and what private ones leave behind fails the test."""
    if Path(DEFAULT_SOCKET).exists():
        unmet("no sandboxd of the host's own")
    before = leftovers()
    yield
    assert not wait_until_gone(before)


def leftovers() -> set[str]:
    """Directories and processes of private daemons."""
    found = {
        str(path)
        for parent in ("/var/lib", "/run", "/tmp")
        for path in Path(parent).glob(f"{PREFIX}*")
    }
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if any(word.startswith(b"/") and PREFIX.encode() in word for word in words):
                found.add(f"process {path.parent.name}")
    return found


def wait_until_gone(before: set[str]) -> set[str]:
    """What is there beyond `before` once it stays, or after a deadline."""
    give_up = time.monotonic() + 20
    while (more := leftovers() - before) and time.monotonic() < give_up:
        time.sleep(0.1)
    return more


def test_a_running_daemon_is_used_and_named(daemon: Daemon) -> None:
    named = {"SANDBOXD_SOCKET": daemon.socket}
    program = "import sys; print('out'); print('error', file=sys.stderr); sys.exit(7)"
    ended = ctl("run", "--memory", "256M", "--", "python3", "-c", program, environment=named)
    assert (ended.returncode, ended.stdout) == (7, b"out\n")
    said = ended.stderr.decode()
    assert said.startswith("error\nsandboxctl: exited with code 7\n")
    for part in ("used: wall ", "\n  limits held by the supervisor, but "):
        assert part in said
    loud = ctl("run", "-v", "--memory", "256M", "--", "true", environment=named).stderr.decode()
    for part in ("memory_bytes", "256 MiB", "ENFORCED BY", "RLIMIT"):
        assert part in loud
    assert ctl("ls", "--ids", "--socket", daemon.socket).stdout == b""


@pytest.mark.parametrize(
    ("argv", "code", "word"),
    [
        (["--", "sh", "-c", "exit 3"], 3, "code 3"),
        (["--", "sh", "-c", "kill -TERM $$"], 143, "SIGTERM"),
        (["--timeout", "0.5s", "--", "sleep", "60"], 137, "SANDBOX_TIMEOUT"),
        (["--max-output", "1K", "--", "yes"], 137, "SANDBOX_OUTPUT_LIMIT_EXCEEDED"),
        (["--", "no-such-program"], 127, "no-such-program"),
        (["--", "/etc/passwd"], 126, "ermission denied"),
        (["--cwd", "no/such", "--", "true"], 125, "no/such"),
        (["--memory", "100000G", "--", "true"], 125, "hint"),
        (["--memory", "1M", "--", "true"], 125, "4 MiB"),
        (["--isolation", "strict", "--", "true"], 125, "strict"),
        (["--require", "cpus", "--require-by", "kernel", "--", "true"], 125, "cpus"),
    ],
)
def test_exit_codes(daemon: Daemon, argv: list[str], code: int, word: str) -> None:
    ended = ctl("run", "--socket", daemon.socket, *argv)
    assert ended.returncode == code, ended.stderr
    assert word in ended.stderr.decode()


def test_bytes_go_in_and_out_unchanged(daemon: Daemon) -> None:
    data = os.urandom(3 << 20)
    ended = ctl("run", "-qi", "--socket", daemon.socket, "--", "cat", input=data)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, data, b"")


def test_input_without_an_end_holds_nothing_up(daemon: Daemon) -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        ended = ctl("run", "-qi", "--socket", daemon.socket, "--", "head", "-1",
                    stdin=endless.stdout)  # fmt: skip
        endless.kill()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"y\n", b"")


def test_output_comes_before_the_end_and_input_after_the_start(daemon: Daemon) -> None:
    argv = command("run", "-qi", "--socket", daemon.socket, "--", "sh", "-c", "echo first; cat")
    with subprocess.Popen(
        argv, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.stdin.write(b"late\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"late\n"
        process.stdin.close()
        assert process.wait(END_SECONDS) == 0


def test_a_sandbox_by_command(daemon: Daemon) -> None:
    named = {"SANDBOXD_SOCKET": daemon.socket}

    def do(*argv: str) -> str:
        ended = ctl(*argv, environment=named)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.decode()

    box = do("create", "--name", "by-command", "--pids", "40").strip()
    try:
        do("exec", "by-command", "--", "sh", "-c", "echo kept > file")
        assert do("exec", "-q", "by-command", "--", "cat", "file") == "kept\n"
        assert "by-command" in do("ls")
        execution = do("exec", "-d", "by-command", "--", "sleep", "300").strip()
        assert execution in do("ps")
        do("update", "by-command", "--pids", "50")
        assert json.loads(do("inspect", "-o", "json", "by-command"))["limits"]["pids"] == 50
        do("suspend", "by-command")
        assert "suspended" in do("ls")
        do("resume", "by-command")
        do("kill", "by-command", execution)
        assert "KILLED_BY_CALLER" in do("inspect", "by-command", execution)
    finally:
        do("rm", box)
    assert "by-command" not in do("ls")


def test_logs_of_one_that_runs_and_of_one_that_ended(daemon: Daemon) -> None:
    named = {"SANDBOXD_SOCKET": daemon.socket}
    box = daemon.create(name="logged")
    assert ctl("logs", "logged", environment=named).returncode == 125
    script = "echo out; echo error >&2; read line < gate; echo end"
    daemon.execute(box["id"], "mkfifo gate")
    started = daemon.execute(box["id"], script, wait=False)
    follower = subprocess.Popen(
        command("logs", "-f", "logged", started["id"]), env={**ENVIRONMENT, **named},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"out\n"
    there = ctl("logs", "logged", environment=named)
    assert (there.returncode, there.stdout, there.stderr) == (0, b"out\n", b"error\n")
    daemon.execute(box["id"], "echo > gate")
    rest, errors = follower.communicate(timeout=END_SECONDS)
    assert (follower.returncode, rest, errors) == (0, b"end\n", b"error\n")
    only = ctl("logs", "--stream", "stderr", "logged", started["id"], environment=named)
    assert (only.stdout, only.stderr) == (b"", b"error\n")
    daemon.release(box["id"])


def test_events_are_told_until_it_is_ended(daemon: Daemon) -> None:
    process = subprocess.Popen(
        command("events", "-o", "json", "--socket", daemon.socket), env=ENVIRONMENT,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    boxes = []
    # Nothing says when it listens, so it is told something until it does.
    while not select.select([process.stdout], [], [], 0.2)[0]:
        boxes.append(daemon.create()["id"])
    first = json.loads(process.stdout.readline())
    assert first["type"] == "sandbox.created"
    assert first["sandbox_id"] in boxes
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=END_SECONDS)
    assert process.returncode == 130
    for box in boxes:
        daemon.release(box)


def test_events_of_a_name_that_nobody_has_yet(daemon: Daemon) -> None:
    process = subprocess.Popen(
        command("events", "--socket", daemon.socket, "later"), env=ENVIRONMENT,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    assert b"cannot find sandbox 'later': waiting" in process.stderr.readline()
    while not select.select([process.stdout], [], [], 0.2)[0]:
        daemon.release(daemon.create(name="later")["id"])
    assert b"(later)" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=END_SECONDS)
    assert process.returncode == 130


CATCHING = "trap 'echo caught; exit 4' INT TERM HUP; echo begun; while :; do sleep 0.05; done"
IGNORING = "trap '' INT TERM HUP; echo begun; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("script", "code", "output", "verdict"),
    [
        ("echo begun; sleep 300", None, b"begun\n", ("SIGNALED", None)),
        (CATCHING, 4, b"begun\ncaught\n", ("EXITED", None)),
        (IGNORING, None, b"begun\n", ("KILLED", "KILLED_BY_CALLER")),
    ],
)
def test_a_signal_is_passed_on_and_a_program_that_stays_is_killed(
    daemon: Daemon, number: signal.Signals, script: str, code: int | None, output: bytes,
    verdict: tuple[str, str | None],
) -> None:  # fmt: skip
    with subprocess.Popen(
        command("run", "--socket", daemon.socket, "--grace", "2s", "--", "sh", "-c", script),
        env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        running = await_running(daemon)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=END_SECONDS)
    assert (process.returncode, stdout) == (128 + number if code is None else code, output)
    ended = daemon.wait(running)
    assert (ended["status"], ended["error_code"]) == verdict
    assert (b"it did not end within 2 s: it is killed" in stderr) == (ended["status"] == "KILLED")


def test_a_second_signal_kills_at_once(daemon: Daemon) -> None:
    script = "trap 'echo caught' INT; echo begun; while :; do sleep 0.05; done"
    with subprocess.Popen(
        command("run", "-q", "--socket", daemon.socket, "--grace", "1h", "--", "sh", "-c", script),
        env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"caught\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 130
    assert b"KILLED_BY_CALLER" in stderr


def await_running(daemon: Daemon) -> Any:
    """The one running execution, once it has printed something."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        for entry in daemon.ok("GET", "/v1/executions?status=RUNNING")["executions"]:
            target = f"/v1/sandboxes/{entry['sandbox_id']}/executions/{entry['id']}"
            if daemon.ok("GET", target)["stdout"]:
                return entry
        time.sleep(0.05)
    raise AssertionError("nothing runs")


def test_a_daemon_that_may_not_be_used_is_not_replaced(requires_root: None, daemon: Daemon) -> None:
    # Imported first, since this Python's own files may be root's alone.
    for command_line in (["run", "--", "true"], ["ls"]):
        script = (
            "import os, sys; from sandboxd.client import calls; "
            "from sandboxd.ctl.main import main, parse; "
            f"calls.DEFAULT_SOCKET = {daemon.socket!r}; argv = {command_line!r}; parse(argv); "
            "os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.exit(main(argv))"
        )
        argv = [sys.executable, "-P", "-c", script]
        ended = subprocess.run(argv, env=ENVIRONMENT, capture_output=True, timeout=END_SECONDS)
        assert ended.returncode == 125
        assert b"permission denied" in ended.stderr
        assert b"hint" in ended.stderr
        # There is none for other commands.
        assert (b"no private daemon" in ended.stderr) == (command_line[0] == "run")


@pytest.mark.usefixtures("private")
def test_run_without_a_daemon_says_by_what_it_ran() -> None:
    ended = ctl("run", "--memory", "256M", "--cpus", "1", "--", "python3", "-c", "print(6 * 7)")
    assert (ended.returncode, ended.stdout) == (0, b"42\n")
    said = ended.stderr.decode()
    for part in ("started a private one", "rlimit scheme: ", "exited with code 0", "limits held"):
        assert part in said
    quiet = ctl("run", "--quiet", "--", "sh", "-c", "exit 9")
    assert (quiet.returncode, quiet.stderr) == (9, b"")


@pytest.mark.usefixtures("private")
def test_doctor_without_a_daemon() -> None:
    ended = ctl("doctor")
    for part in ("scheme: rlimit", "LIMIT", "isolation levels:", "basic: available"):
        assert part in ended.stdout.decode()
    asked = ctl("doctor", "-o", "json")
    host = json.loads(asked.stdout)
    assert host["scheme"] == "rlimit"
    # What is left to nobody depends on the host. A share is, but at its default needs no holder.
    assert (host["limits"]["cpu_weight"], host["enforcement"]["cpu_weight"]["by"]) == (100, "none")
    bounds = {name: held for name, held in host["enforcement"].items() if name != "cpu_weight"}
    is_weak = any(held["by"] == "none" for held in bounds.values())
    assert (ended.returncode, asked.returncode) == (is_weak, is_weak)


@pytest.mark.usefixtures("private")
def test_private_daemons_beside_each_other() -> None:
    script = "import time; time.sleep(1); print(42)"
    processes = [
        subprocess.Popen(
            command("run", "-q", "--", "python3", "-c", script),
            env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )
        for _ in range(3)
    ]  # fmt: skip
    for process in processes:
        stdout, _ = process.communicate(timeout=END_SECONDS)
        assert (process.returncode, stdout) == (0, b"42\n")


@pytest.mark.usefixtures("private")
def test_a_daemon_that_refuses_to_start_is_told_with_its_reason() -> None:
    ended = ctl("run", "--", "true", environment={"SANDBOX_MEMORY_LIMIT_BYTES": "900T"})
    assert ended.returncode == 125
    assert b"cannot start a private daemon: it ended with code 1" in ended.stderr
    assert b"does not fit" in ended.stderr


@pytest.mark.usefixtures("private")
def test_a_private_run_that_is_interrupted_leaves_nothing() -> None:
    process = started_private()
    process.terminate()
    process.communicate(timeout=END_SECONDS)
    assert process.returncode == 143


def started_private() -> subprocess.Popen[bytes]:
    """sandboxctl with a private daemon, once the execution runs."""
    process = subprocess.Popen(
        command("run", "--", "sh", "-c", f"exec sleep {SLEEP_SECONDS}"),
        env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    give_up = time.monotonic() + 60
    while not sleeping() and time.monotonic() < give_up:
        time.sleep(0.05)
    assert sleeping()
    return process


def sleeping() -> list[str]:
    """Pids of the execution that `started_private` started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == f"sleep\0{SLEEP_SECONDS}\0".encode():
                found.append(path.parent.name)
    return found


def test_a_killed_sandboxctl_leaves_nothing() -> None:
    before = leftovers()
    process = started_private()
    process.kill()
    process.communicate(timeout=END_SECONDS)
    more = wait_until_gone(before)
    commands = sleeping()
    for name in more:
        if name.startswith("/"):
            shutil.rmtree(name)
    for pid in [*commands, *(name.split()[1] for name in more if name.startswith("process"))]:
        os.kill(int(pid), signal.SIGKILL)
    assert not more
    assert not commands


def test_without_root_the_callers_own_uid_is_used_and_said() -> None:
    prefix: list[str] = []
    if os.geteuid() == 0:
        # Another uid might not be able to read this Python; a namespace's own is not root either.
        prefix = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
        probe = subprocess.run([*prefix, "true"], capture_output=True)
        if probe.returncode != 0:
            unmet("user namespaces (cannot become another uid)")
    before = leftovers()
    argv = [*prefix, *command("run", "--", "sh", "-c", "id -u; pwd")]
    ended = subprocess.run(
        argv, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, timeout=END_SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    uid, home = ended.stdout.decode().split()
    assert int(uid) == (1000 if prefix else os.geteuid())
    assert PREFIX in home
    assert b"rlimit scheme" in ended.stderr
    quiet = in_place(prefix, "run", "-q", "--", "true")
    said = f"sandboxctl: runs as you and sees your files: isolation none, as uid {uid}\n"
    assert (quiet.returncode, quiet.stderr.decode()) == (0, said)
    for level in ("basic", "standard", "strict"):
        more = in_place(prefix, "run", "-q", "--isolation", level, "--", "echo", "ran")
        assert (more.returncode, more.stdout) == (125, b"")
        assert f"cannot give isolation {level}: this host lacks root".encode() in more.stderr
    doctor = in_place(prefix, "doctor")
    assert b"none: available, the default" in doctor.stdout
    assert b"basic: not available" in doctor.stdout
    assert leftovers() == before


def in_place(prefix: list[str], *argv: str) -> subprocess.CompletedProcess[bytes]:
    """sandboxctl, started by `prefix`."""
    return subprocess.run(
        [*prefix, *command(*argv)], env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=END_SECONDS,
    )  # fmt: skip
