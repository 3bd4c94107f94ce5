# SPDX-License-Identifier: Apache-2.0
"""sandboxd.client with a real daemon: the blocking client, and the same for asyncio."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.client import AsyncSandbox, CommandFailed, DaemonUnreachable, Output, Result, Sandbox
from sandboxd.client.bodies import NewFile
from sandboxd.errors import (
    CapacityExceeded,
    ExecutionFinished,
    ExecutionNotStarted,
    FileMissing,
    InvalidRequest,
    NameInUse,
    SandboxNotFound,
    SandboxReleased,
)
from tests.fixtures import daemon_fixture
from tests.harness import Daemon, running_daemon

pytestmark = pytest.mark.timeout(180)
TICKER = "import time\nfor i in range(3): print(i, flush=True); time.sleep(0.2)"
daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off")


@pytest.fixture(scope="module")
def box(daemon: Daemon) -> Iterator[Sandbox]:
    with Sandbox.create(socket=daemon.socket, limits={"memory_bytes": "256M"}) as sandbox:
        yield sandbox


def states(daemon: Daemon, sandbox: str) -> str:
    state: str = daemon.ok("GET", f"/v1/sandboxes/{sandbox}")["state"]
    return state


def test_with_releases(daemon: Daemon) -> None:
    with Sandbox.create("short", socket=daemon.socket, metadata={"a": "b"}) as sandbox:
        assert states(daemon, sandbox.id) == "ready"
        assert sandbox.info()["metadata"] == {"a": "b"}
        assert Sandbox.connect("short", socket=daemon.socket).id == sandbox.id
        named = Sandbox.list(name="short", state="ready", socket=daemon.socket)
        assert [one.id for one in named] == [sandbox.id]
        assert Sandbox.list(metadata={"a": "x"}, socket=daemon.socket) == []
        with pytest.raises(NameInUse):
            Sandbox.create("short", socket=daemon.socket)
    assert states(daemon, sandbox.id) == "released"
    sandbox.kill()


def test_a_str_runs_by_the_shell_and_a_list_exactly(box: Sandbox) -> None:
    assert box.run("echo $((6 * 7)) | cat").stdout == "42\n"
    assert box.run(["echo", "$((6 * 7))"]).stdout == "$((6 * 7))\n"
    result = box.run(
        ["sh", "-c", "pwd; echo $A; cat; echo e >&2; exit 3"],
        env={"A": "b"}, cwd="/tmp", stdin="in\n",
    )  # fmt: skip
    assert (result.stdout, result.stderr) == ("/tmp\nb\nin\n", "e\n")
    assert (result.status, result.exit_code, result.ok) == ("EXITED", 3, False)
    assert result.usage.wall_seconds is not None
    assert result.raw["argv"][0] == "sh"


def test_bytes_and_more_output_than_an_answer_carries(box: Sandbox) -> None:
    data = bytes(range(256)) * 8192
    result = box.run(["cat"], stdin=data)
    assert result.stdout_bytes == data
    assert "\ufffd" in result.stdout


LARGE = bytes(range(256)) * (48 << 10)


def test_input_of_any_size_is_passed_on(box: Sandbox) -> None:
    copied = box.run("sha256sum; echo end >&2", stdin=LARGE, timeout="120s")
    assert copied.stdout.split()[0] == hashlib.sha256(LARGE).hexdigest()
    text = "grüße\n" * 400_000
    heard: list[str] = []
    seen = box.run("wc -c", stdin=text, on_stdout=heard.append, timeout="120s")
    assert "".join(heard) == seen.stdout == f"{len(text.encode())}\n"
    # One that does not read it all is fine.
    assert box.run("head -c 3 > /dev/null; exit 4", stdin=LARGE).exit_code == 4
    handle = box.run("sleep 0.3; wc -c", stdin=LARGE, background=True)
    assert handle.wait(120).stdout == f"{len(LARGE)}\n"
    assert box.run("cat > /dev/null; sleep 60", stdin=LARGE, timeout="2s").status == "TIMED_OUT"
    with pytest.raises(InvalidRequest):
        box.run("cat", stdin="\ud800" * 10)


def test_a_terminal(box: Sandbox) -> None:
    result = box.run("stty size; tty > /dev/null && echo yes; cat", tty=(33, 99), stdin="typed\n")
    words = result.stdout.split()
    # What is typed is echoed whenever it comes.
    assert [word for word in words if word != "typed"] == ["33", "99", "yes"]
    assert "typed" in words
    # Without input it has ended at once, so that nothing waits for somebody to type.
    assert box.run("cat; echo over", tty=True, timeout="60s").stdout.split() == ["over"]
    handle = box.run("read line; stty size", tty=True, background=True)
    handle.resize(10, 20)
    handle.write_stdin("go\n")
    assert handle.wait(60).stdout.split()[-2:] == ["10", "20"]


def test_trees_there_and_back(box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "bin").mkdir(parents=True)
    (source / "bin/tool").write_text("#!/bin/sh\necho ran")
    (source / "bin/tool").chmod(0o755)
    (source / "bin/python").symlink_to("/usr/bin/python3")
    os.mkfifo(source / "pipe")
    os.utime(source / "bin/tool", (1000, 1000))
    assert box.files.upload(source, "up/tree") == [
        f"{source}/pipe: neither a file nor a directory nor a link"
    ]
    assert box.run("up/tree/bin/tool").stdout == "ran\n"
    entry = box.files.stat("up/tree/bin/tool")
    assert (entry.type, entry.size_bytes, entry.mode) == ("file", 18, 0o755)
    assert entry.modified_at.timestamp() == 1000
    with pytest.raises(FileMissing):
        box.files.stat("up/nosuch")
    out = box.files.download("up/tree", tmp_path / "back")
    assert out == ["bin/python: a link that leads to /usr/bin/python3"]
    assert (tmp_path / "back/bin/tool").read_text() == "#!/bin/sh\necho ran"
    assert (tmp_path / "back/bin/tool").stat().st_mtime == 1000
    box.files.upload(source / "bin/tool", "/tmp/tool")
    assert box.run("/tmp/tool").stdout == "ran\n"
    box.files.download("/tmp/tool", tmp_path / "tool")
    assert (tmp_path / "tool").stat().st_mode & 0o777 == 0o755


async def test_the_same_input_terminals_and_trees_for_asyncio(
    daemon: Daemon, tmp_path: Path
) -> None:
    (tmp_path / "tree/a").mkdir(parents=True)
    (tmp_path / "tree/a/f").write_text("x")
    async with await AsyncSandbox.create(socket=daemon.socket) as box:
        copied = await box.run("sha256sum", stdin=LARGE, timeout="120s")
        assert copied.stdout.split()[0] == hashlib.sha256(LARGE).hexdigest()
        assert (await box.run("exit 4", stdin=LARGE)).returncode == 4
        running = await box.run("wc -c", stdin=LARGE, background=True)
        assert (await running.wait(120)).stdout == f"{len(LARGE)}\n"
        assert (await box.run("cat; stty size", tty=(7, 8))).stdout.split() == ["7", "8"]
        assert await box.files.upload(tmp_path / "tree", "tree") == []
        assert (await box.files.stat("tree/a/f")).size_bytes == 1
        assert await box.files.download("tree", tmp_path / "back") == []
        assert (tmp_path / "back/a/f").read_text() == "x"
        await box.files.download("tree/a/f", tmp_path / "f")
        await box.files.upload(tmp_path / "f", "g")
        assert await box.files.read("g") == "x"


def test_check_tells_how_it_failed(box: Sandbox) -> None:
    assert box.run("true", check=True).ok
    with pytest.raises(CommandFailed, match="exit code 7") as failed:
        box.run("echo no >&2; exit 7", check=True)
    assert failed.value.result.stderr == "no\n"
    with pytest.raises(CommandFailed, match="TIMED_OUT, SANDBOX_TIMEOUT"):
        box.run("sleep 60", timeout="300ms", check=True)
    limited = box.run("yes", limits={"max_output_bytes": "1K"})
    assert (limited.status, limited.limit_owner) == ("OUTPUT_LIMIT", "execution")
    assert len(limited.stdout_bytes) == 1024


def test_refusals_are_their_classes(daemon: Daemon, box: Sandbox) -> None:
    with pytest.raises(ExecutionNotStarted):
        box.run(["no-such-program"])
    with pytest.raises(InvalidRequest):
        box.run("true", limits={"nosuch": 1})
    with pytest.raises(InvalidRequest):
        box.run("true", stdin=3)  # type: ignore[call-overload]
    with pytest.raises(CapacityExceeded):
        Sandbox.create(limits={"memory_bytes": "900T"}, socket=daemon.socket)
    with pytest.raises(SandboxNotFound):
        Sandbox.connect("nosuch", socket=daemon.socket)
    with pytest.raises(DaemonUnreachable):
        Sandbox.create(socket="/nonexistent/socket")


def test_output_comes_while_it_runs(box: Sandbox) -> None:
    began, pieces = time.monotonic(), []
    result = box.run(
        ["python3", "-c", TICKER], on_stdout=lambda text: pieces.append((time.monotonic(), text))
    )
    assert "".join(text for _, text in pieces) == "0\n1\n2\n" == result.stdout
    assert pieces[0][0] - began < time.monotonic() - began - 0.2
    errors: list[str] = []
    box.run("echo out; echo error >&2", on_stderr=errors.append)
    assert "".join(errors) == "error\n"


def test_a_character_is_never_cut_in_two(box: Sandbox) -> None:
    script = (
        "import sys, time; w = sys.stdout.buffer.write\n"
        r"w(b'\xc3'); sys.stdout.flush(); time.sleep(0.3); w(b'\xbc')"
    )
    pieces: list[str] = []
    box.run(["python3", "-c", script], on_stdout=pieces.append)
    assert "".join(pieces) == "ü"


def test_a_background_handle(box: Sandbox) -> None:
    handle = box.run(["python3", "-c", TICKER], background=True)
    outputs = list(handle)
    assert all(isinstance(output, Output) for output in outputs)
    assert b"".join(output.data for output in outputs) == b"0\n1\n2\n"
    assert handle.wait().exit_code == 0
    assert handle.id in [one.id for one in box.executions()]
    assert handle.status() == "EXITED"
    handle.kill()
    sleeper = box.run("trap 'exit 5' USR1; echo ready; while :; do sleep 0.05; done",
                      background=True)  # fmt: skip
    with pytest.raises(TimeoutError):
        sleeper.wait(0.1)
    next(iter(sleeper))
    sleeper.kill("SIGUSR1")
    assert sleeper.wait(30).exit_code == 5
    endless = box.run("sleep 1000", background=True)
    endless.kill()
    ended = endless.wait(30)
    assert (ended.status, ended.error_code) == ("KILLED", "KILLED_BY_CALLER")


class Unwanted(Exception):
    pass


def test_leaving_with_an_error_kills_the_command(box: Sandbox) -> None:
    def refuse(_text: str) -> None:
        raise Unwanted

    with pytest.raises(Unwanted):
        box.run("echo ready; sleep 1000", on_stdout=refuse)
    last = box.executions()[-1].wait(30)
    assert (last.status, last.error_code) == ("KILLED", "KILLED_BY_CALLER")


def test_suspend_resume_update(daemon: Daemon, box: Sandbox) -> None:
    box.suspend()
    assert states(daemon, box.id) == "suspended"
    box.resume()
    assert states(daemon, box.id) == "ready"
    changed = box.update(limits={"pids": 77}, metadata={"k": "v"})
    assert (changed["limits"]["pids"], changed["metadata"]) == (77, {"k": "v"})


def test_output_and_wait_go_on_over_a_restart_of_the_daemon() -> None:
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        sandbox = Sandbox.create(socket=daemon.socket)
        script = "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.1; done"
        handle = sandbox.run(script, background=True)
        pieces = iter(handle)
        seen = next(pieces).data
        daemon.kill()
        restart = threading.Timer(0.5, daemon.start)
        restart.start()
        seen += b"".join(output.data for output in pieces)
        restart.join()
        assert seen.split() == [b"%d" % number for number in range(40)]
        assert handle.wait(60).stdout_bytes == seen
        sandbox.kill()


@contextmanager
def losing_first_post(path: str, directory: Path) -> Iterator[str]:
    """A way to the daemon that does the first POST, and loses its answer."""
    lost: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "way"))
        listener.listen(8)

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client, socket.socket(socket.AF_UNIX) as daemon:
                    daemon.connect(path)
                    asked = client.recv(1 << 20)
                    daemon.sendall(asked)
                    answer = b"".join(iter(lambda: daemon.recv(1 << 16), b""))
                    if asked.startswith(b"POST ") and not lost:
                        lost.append(answer)
                    else:
                        client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield str(directory / "way")
        # What waits in accept(2) is woken by nothing but this.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert lost[0].startswith((b"HTTP/1.1 200", b"HTTP/1.1 201"))


def test_what_was_done_before_its_answer_was_lost_is_done_once(
    daemon: Daemon, tmp_path: Path
) -> None:
    with losing_first_post(daemon.socket, tmp_path) as path:
        sandbox = Sandbox.create("once", socket=path)
        assert sandbox.run("echo x >> file; wc -l < file").stdout == "1\n"
    assert [one.id for one in Sandbox.list(name="once", socket=daemon.socket)] == [sandbox.id]
    (tmp_path / "again").mkdir()
    with losing_first_post(daemon.socket, tmp_path / "again") as path:
        again = Sandbox.connect("once", socket=path)
        assert again.run("echo x >> file; wc -l < file").stdout == "2\n"
    Sandbox.connect("once", socket=daemon.socket).kill()


async def test_the_same_for_asyncio(daemon: Daemon) -> None:
    async with await AsyncSandbox.create("aio", socket=daemon.socket) as sandbox:
        other = await AsyncSandbox.connect("aio", socket=daemon.socket)
        listed = await AsyncSandbox.list(name="aio", socket=daemon.socket)
        assert other.id == sandbox.id in [one.id for one in listed]
        results = await asyncio.gather(
            *(sandbox.run(f"sleep 0.2; echo {number}") for number in range(8))
        )
        assert [result.stdout for result in results] == [f"{number}\n" for number in range(8)]
        with pytest.raises(CommandFailed):
            await sandbox.run("exit 1", check=True)
        data = bytes(range(256)) * 8192
        assert (await sandbox.run(["cat"], stdin=data)).stdout_bytes == data
        pieces: list[str] = []

        async def keep(text: str) -> None:
            pieces.append(text)

        await sandbox.run(["python3", "-c", TICKER], on_stdout=keep)
        assert "".join(pieces) == "0\n1\n2\n"
        await sandbox.suspend()
        await sandbox.resume()
        assert (await sandbox.update(limits={"pids": 66}))["limits"]["pids"] == 66
        handle = await sandbox.run("echo a; echo b >&2; sleep 1000", background=True)
        seen = set()
        async for output in handle:
            seen.add((output.stream, output.text))
            if len(seen) == 2:
                break
        assert seen == {("stdout", "a\n"), ("stderr", "b\n")}
        with pytest.raises(TimeoutError):
            await handle.wait(0.1)
        await handle.kill()
        assert (await handle.wait(30)).status == "KILLED"
        reader = await sandbox.run("read line; echo got $line; cat", background=True, stdin=True)
        await reader.write_stdin("one\n")
        await reader.write_stdin(b"two\n")
        await reader.close_stdin()
        assert (await reader.wait()).stdout == "got one\ntwo\n"
        await reader.close_stdin()
        with pytest.raises(ExecutionFinished):
            await reader.write_stdin("late")
        with pytest.raises(ExecutionNotStarted):
            await sandbox.run(["no-such-program"])
    assert states(daemon, sandbox.id) == "released"
    with pytest.raises(DaemonUnreachable):
        await AsyncSandbox.create(socket="/nonexistent/socket")


async def test_a_cancelled_task_kills_its_command(daemon: Daemon) -> None:
    async with await AsyncSandbox.create(socket=daemon.socket) as sandbox:
        begun = asyncio.Event()
        task = asyncio.create_task(
            sandbox.run("echo ready; sleep 1000", on_stdout=lambda _: begun.set())
        )
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [execution] = await sandbox.executions()
        ended = await execution.wait(30)
        assert (ended.status, ended.error_code) == ("KILLED", "KILLED_BY_CALLER")


FILES: dict[str, NewFile] = {
    "bin/job": ("#!/bin/sh\nwc -c < in; cat /tmp/x; printf '\\377' > raw", 0o755),
    "in": b"\0\xff" * 4,
    "/tmp/x": "grüße\n",
}
READ = ["./out.txt", "raw", "none"]


def check_once(result: Result) -> None:
    assert (result.returncode, result.stderr) == (0, "")
    assert list(result.files) == READ
    out, raw, none = result.files.values()
    assert (out.text, out.mode, out.error) == ("8\ngrüße\n", 0o644, None)
    assert (raw.data, raw.text) == (b"\xff", "\ufffd")
    assert isinstance(none.error, FileMissing)
    with pytest.raises(FileMissing):
        _ = none.data


def test_one_request_with_files_in_and_out(daemon: Daemon) -> None:
    result = Sandbox.once(
        "bin/job > out.txt", files=FILES, read_files=READ, metadata={"of": "once"},
        limits={"memory_bytes": "256M"}, socket=daemon.socket,
    )  # fmt: skip
    check_once(result)
    assert states(daemon, result.sandbox_id) == "released"
    info = daemon.ok("GET", f"/v1/sandboxes/{result.sandbox_id}")
    assert info["metadata"] == {"of": "once"}
    plain = Sandbox.once(["cat"], stdin="in", name="plain", socket=daemon.socket)
    assert (plain.stdout, dict(plain.files)) == ("in", {})
    whole = Sandbox.once(["head", "-c", "3000000", "/dev/zero"], socket=daemon.socket)
    assert len(whole.stdout_bytes) == 3_000_000
    with pytest.raises(CommandFailed) as failed:
        Sandbox.once("echo kept > f; exit 3", read_files=["f"], check=True, socket=daemon.socket)
    assert failed.value.result.files["f"].text == "kept\n"
    with pytest.raises(InvalidRequest, match="stdin"):
        Sandbox.once("cat", stdin=LARGE, socket=daemon.socket)
    with pytest.raises(ExecutionNotStarted):
        Sandbox.once(["no-such-program"], socket=daemon.socket)


async def test_one_request_with_files_for_asyncio(daemon: Daemon) -> None:
    check_once(
        await AsyncSandbox.once(
            "bin/job > out.txt", files=FILES, read_files=READ, socket=daemon.socket
        )
    )


def test_one_request_whose_answer_was_lost_is_done_once(daemon: Daemon, tmp_path: Path) -> None:
    with losing_first_post(daemon.socket, tmp_path) as path:
        result = Sandbox.once(
            "echo x > f", read_files=["f"], metadata={"of": "lost"}, socket=path
        )  # fmt: skip
    assert result.files["f"].text == "x\n"
    found = Sandbox.list(metadata={"of": "lost"}, socket=daemon.socket)
    assert [one.id for one in found] == [result.sandbox_id]


async def test_a_cancelled_task_releases_the_sandbox_of_its_one_request(daemon: Daemon) -> None:
    of = {"of": "cancelled"}
    task = asyncio.create_task(
        AsyncSandbox.once("sleep 1000", read_files=["f"], metadata=of, socket=daemon.socket)
    )
    found: list[AsyncSandbox] = []
    while not found or not await found[0].executions():
        assert not task.done()
        found = await AsyncSandbox.list(metadata=of, socket=daemon.socket)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert states(daemon, found[0].id) == "released"


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_one_request_goes_on_over_a_restart_of_the_daemon(way: str) -> None:
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon, ThreadPoolExecutor(1) as pool:
        wait = "while ! test -e go; do sleep 0.05; done; cat go"
        once = pool.submit(Sandbox.once, wait, read_files=["go"], socket=daemon.socket)
        # A start that is cut short is undone, and made anew by the retry in another sandbox.
        while not daemon.ok("GET", "/v1/executions?status=RUNNING")["executions"]:
            assert not once.done()
        daemon.stop() if way == "stop" else daemon.kill()
        daemon.start()
        [sandbox] = Sandbox.list(state="ready", socket=daemon.socket)
        sandbox.files.write("go", "gone on\n")
        result = once.result(60)
        assert result.stdout == "gone on\n"
        # The next daemon does not know what was to be read.
        assert isinstance(result.files["go"].error, SandboxReleased)
        assert states(daemon, sandbox.id) == "released"


def test_both_clients_have_the_same_methods() -> None:
    from sandboxd.client.files import AsyncFiles, Files
    from sandboxd.client.handle import AsyncHandle, Handle

    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(getattr(kind, name)).parameters)
            for name in dir(kind)
            if not name.startswith("_")
        }

    for blocking, other in ((Sandbox, AsyncSandbox), (Handle, AsyncHandle), (Files, AsyncFiles)):
        assert public(blocking) == public(other)
