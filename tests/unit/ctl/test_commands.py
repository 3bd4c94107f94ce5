# SPDX-License-Identifier: Apache-2.0
"""sandboxctl as a process, against the real server and engine over fakes of the engine's ports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sandboxd.api import streams
from sandboxd.core.model import Command, ExecutionStatus
from sandboxd.ctl.commands import doctor
from sandboxd.ctl.main import COMMANDS
from tests.unit.api.harness import ADMIN, Served, a_world, served, serving_world
from tests.unit.fakes.programs import not_found

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: bytes
    raw_stderr: bytes

    @property
    def stderr(self) -> str:
        return self.raw_stderr.decode()


def asked_of(server: Served) -> Command:
    """What the one execution was to run."""
    [shim] = server.shims
    return shim.request.execution.command


async def start(
    server: Served | None, *argv: str, **environment: str
) -> asyncio.subprocess.Process:
    if server is not None:
        environment["SANDBOXD_SOCKET"] = server.path
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "sandboxd.ctl.main", *argv,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env={**ENVIRONMENT, **environment},
    )  # fmt: skip


async def ctl(server: Served | None, *argv: str, stdin: bytes = b"", **environment: str) -> Ended:
    process = await start(server, *argv, **environment)
    stdout, stderr = await process.communicate(stdin)
    assert process.returncode is not None
    return Ended(process.returncode, stdout, stderr)


async def test_run_prints_output_then_verdict_usage_and_who_enforced_what() -> None:
    async with served() as server:
        server.commands(b"a\xff\0b", b"error\n")
        ended = await ctl(server, "run", "--memory", "256M", "--env", "A=b", "--", "prog", "-x")
        assert (ended.code, ended.stdout) == (0, b"a\xff\0b")
        assert ended.stderr.startswith("error\nsandboxctl: exited with code 0\n")
        weak = "io_read_bytes_per_second, io_write_bytes_per_second by nobody\n"
        others = f"disk_bytes, timeout_seconds, max_output_bytes by the supervisor; {weak}"
        for part in ("used: wall 1.00 s", f"\n  limits held by the kernel, but {others}"):
            assert part in ended.stderr
        assert "memory.max" not in ended.stderr
        loud = await ctl(server, "run", "-v", "--memory", "256M", "--", "prog")
        for part in ("memory_bytes", "256 MiB", "kernel", "memory.max"):
            assert part in loud.stderr
        asked = server.shims[0].request
        assert asked.sandbox.limits.memory_bytes == 256 << 20
        assert asked.execution.command.argv == ("prog", "-x")
        assert asked.env["A"] == "b"
        quiet = await ctl(server, "run", "--quiet", "--", "prog")
        assert quiet.stderr == "error\n"


async def test_output_is_byte_exact_beyond_what_an_answer_carries() -> None:
    async with served() as server:
        # A character of two bytes lies across the first MiB's end.
        stdout, stderr = b"x" + "ü".encode() * (1 << 20), bytes(range(256)) * 8192
        server.commands(stdout, stderr)
        ended = await ctl(server, "run", "-q", "--", "prog")
        assert ended.stdout == stdout
        assert ended.raw_stderr == stderr


@pytest.mark.parametrize("data", [b"text\n", b"\xff\0\n" * 1000, b""])
async def test_stdin_is_passed_on_byte_exact_when_asked(data: bytes) -> None:
    async with served() as server:
        server.commands(seconds=None)
        process = await start(server, "run", "-qi", "--", "cat")
        ending = asyncio.create_task(process.communicate(data))
        shim = await server.started()
        await server.world.until(lambda: "close_input" in shim.orders)
        assert shim.stdin is not None
        assert shim.stdin.taken == data
        shim.finish()
        await ending
        assert process.returncode == 0


async def test_with_too_many_streams_output_is_printed_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "MAX_OF_EXECUTION", 0)
    async with served() as server:
        server.commands(seconds=None)
        process = await start(server, "run", "-q", "--", "prog")
        shim = await server.started()
        # Past what is waited for an execution that ends soon.
        await asyncio.sleep(0.5)
        shim.finish(wait_status=4 << 8)
        stdout, stderr = await process.communicate()
        assert (process.returncode, stdout, stderr) == (4, b"out\n", b"")


async def test_stdin_is_not_passed_on_unasked() -> None:
    async with served() as server:
        assert (await ctl(server, "run", "-q", "--", "cat", stdin=b"data")).code == 0
        command = asked_of(server)
        assert not command.stdin_open
        assert command.stdin is None


async def test_a_file_as_stdin_is_part_of_the_request(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\0\n")
    async with served() as server:
        with (tmp_path / "file").open("rb") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "sandboxd.ctl.main", "run", "-qi", "--", "cat",
                stdin=file, stdout=asyncio.subprocess.DEVNULL,
                env={**ENVIRONMENT, "SANDBOXD_SOCKET": server.path},
            )  # fmt: skip
            assert await process.wait() == 0
        assert asked_of(server).stdin == b"\xff\0\n"


async def test_what_was_refused_is_told_by_the_exit_code() -> None:
    async with served() as server:
        filled = await server.fill()
        full = await ctl(server, "run", "--", "prog")
        assert (full.code, full.stdout) == (75, b"")
        assert "hint: release a sandbox" in full.stderr
        await server.engine.release_sandbox(ADMIN, filled)
        server.world.breaks, server.world.fault = "go", not_found("prog")
        assert (await ctl(server, "run", "--", "prog")).code == 127
        server.world.fault = RuntimeError()
        broken = await ctl(server, "run", "--", "prog")
        assert broken.code == 125
        assert "request: " in broken.stderr
        server.world.breaks = None
        missing = await ctl(server, "exec", "nosuch", "--", "prog")
        assert missing.code == 125
        assert "hint: `sandboxctl ls`" in missing.stderr
        assert (await ctl(server, "run", "--")).code == 125


async def test_a_killed_execution_is_137_with_the_reason_even_when_quiet() -> None:
    async with served() as server:
        server.commands(seconds=None)
        process = await start(server, "run", "--quiet", "--", "prog")
        shim = await server.started()
        shim.leave(replace(shim.facts(wait_status=9), counters={"oom_kill": 1, "oom": 1}))
        _stdout, stderr = await process.communicate()
        assert process.returncode == 137
        assert b"OOM_KILLED (SANDBOX_MEMORY_LIMIT_EXCEEDED, the sandbox's limit" in stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("count", [1, 2])
async def test_a_signal_is_passed_on_and_then_kills_the_execution(
    number: signal.Signals, code: int, count: int
) -> None:
    async with served() as server:
        server.commands(seconds=None)
        grace = "0.1s" if count == 1 else "1h"
        process = await start(server, "run", "--grace", grace, "--", "prog")
        shim = await server.started()
        await server.world.until(lambda: f"watch {shim.name}" in server.world.calls)
        for _ in range(count):
            process.send_signal(number)
            # A program of the fakes ends by a kill alone.
            await server.world.until(lambda: shim.orders)
        stdout, stderr = await process.communicate()
        [execution] = server.executions
        assert execution.outcome.error_code == "KILLED_BY_CALLER"
        assert (process.returncode, stdout) == (code, b"out\n")
        assert b"KILLED" in stderr
        assert shim.orders == [f"signal {number:d} to the group", "kill KILLED_BY_CALLER 0"]


async def test_an_argument_that_no_json_can_carry_is_refused() -> None:
    async with served() as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "sandboxd.ctl.main", "run", "--", "prog", b"\xff",
            stderr=asyncio.subprocess.PIPE,
            env={**ENVIRONMENT, "SANDBOXD_SOCKET": server.path},
        )  # fmt: skip
        _stdout, stderr = await process.communicate()
        assert process.returncode == 125
        assert b"'\\udcff': it is not UTF-8" in stderr


@pytest.mark.parametrize("stage", ["go", "started", "watch"])
async def test_a_restart_of_the_daemon_is_waited_for(tmp_path: Path, stage: str) -> None:
    directory = str(tmp_path)
    with a_world(directory) as world:
        async with serving_world(world, directory) as server:
            server.commands(seconds=None)
            process = await start(server, "run", "--", "prog")
            if stage == "started":
                await server.started()
            else:
                await world.until(lambda: any(call.startswith(stage) for call in world.calls))
        # As in a real host: it ends whether somebody waits for that or only reads what it prints.
        for shim in server.shims:
            shim.finish()
        async with serving_world(world, directory) as server:
            stdout, stderr = await process.communicate()
    assert (process.returncode, stdout) == (0, b"out\n"), stderr


async def test_a_reader_that_went_away_does_not_change_the_exit_code() -> None:
    async with served() as server:
        server.commands(b"x" * (4 << 20), seconds=None)
        process = await start(server, "run", "-q", "--", "prog")
        shim = await server.started()
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        shim.finish()
        assert await process.wait() == 0


async def test_the_life_of_a_sandbox_by_command() -> None:
    async with served() as server:
        created = await ctl(server, "create", "--name", "box", "--memory", "1G",
                            "--metadata", "job=7", "--lifetime", "1h")  # fmt: skip
        box = created.stdout.decode().strip()
        listed = (await ctl(server, "ls")).stdout.decode()
        assert box in listed
        assert "1 GiB" in listed
        assert (await ctl(server, "ls", "--ids")).stdout.decode() == f"{box}\n"
        assert json.loads((await ctl(server, "ls", "-o", "json")).stdout)[0]["name"] == "box"
        for argv, count in (
            (["--state", "ready"], 1), (["--state", "suspended"], 0), (["--name", "box"], 1),
            (["--metadata", "job=7"], 1), (["--metadata", "job=8"], 0),
        ):  # fmt: skip
            found = await ctl(server, "ls", "--ids", *argv)
            assert len(found.stdout.split()) == count, argv
        assert (await ctl(server, "exec", "box", "--", "prog")).stdout == b"out\n"
        assert b"EXITED" in (await ctl(server, "ps", "--status", "exited")).stdout
        assert b"EXITED" not in (await ctl(server, "ps", "--status", "LOST")).stdout
        server.commands(seconds=None)
        detached = await ctl(server, "exec", "--detach", "box", "--", "prog", "--flag")
        identity = detached.stdout.decode().strip()
        running = (await ctl(server, "ps")).stdout.decode()
        assert identity in running
        assert running.count("RUNNING") == 1
        assert (await ctl(server, "ps", "-a", "box")).stdout.decode().count("EXITED") == 1
        for argv in (["inspect", "box"], ["inspect", "box", identity]):
            assert b"memory.max" in (await ctl(server, *argv)).stdout
            assert json.loads((await ctl(server, *argv, "-o", "json")).stdout)["limits"]
        assert (await ctl(server, "kill", "--signal", "usr1", "box", identity)).code == 0
        assert (await ctl(server, "kill", "--grace", "2s", "box", identity)).code == 0
        assert server.world.shims[identity].orders == ["signal 10", "kill KILLED_BY_CALLER 2"]
        assert (await ctl(server, "kill", "box", identity)).code == 125
        nothing = await ctl(server, "update", "box")
        assert (nothing.code, "cannot update nothing" in nothing.stderr) == (125, True)
        needless = await ctl(server, "update", "box", "--pids", "9", "--force")
        assert (needless.code, "--force needs --memory" in needless.stderr) == (125, True)
        forced = await ctl(server, "update", "box", "--pids", "9", "--memory", "1G", "--force")
        assert forced.code == 0
        assert server.engine.get_sandbox(ADMIN, box).limits.pids == 9
        assert (await ctl(server, "suspend", "box")).code == 0
        assert server.engine.get_sandbox(ADMIN, box).state == "suspended"
        assert (await ctl(server, "resume", "box")).code == 0
        removed = await ctl(server, "rm", "nosuch", "box")
        assert removed.code == 125
        assert "hint: `sandboxctl ls`" in removed.stderr
        assert "done with box; not with nosuch\n" in removed.stderr
        assert server.engine.get_sandbox(ADMIN, box).state == "released"
        assert box not in (await ctl(server, "ls")).stdout.decode()
        assert box in (await ctl(server, "ls", "--all")).stdout.decode()


async def test_a_command_that_the_locale_cannot_encode_hides_nothing() -> None:
    async with served() as server:
        await ctl(server, "create", "--name", "box")
        await ctl(
            server, "exec", "box", "--", "prog", "\N{SNOWMAN}\N{LATIN SMALL LETTER E WITH ACUTE}"
        )
        listed = await ctl(server, "ps", "--all", PYTHONIOENCODING="latin-1")
        assert listed.code == 0, listed.stderr
        assert "'?\N{LATIN SMALL LETTER E WITH ACUTE}'" in listed.stdout.decode("latin-1")


async def test_doctor_is_1_until_all_limits_are_held() -> None:
    async with served() as server:
        ended = await ctl(server, "doctor")
        assert ended.code == 1
        for part in ("systemd (systemd is PID 1)", "memory.max", "no block device", "basic",
                     "nothing holds io_read_bytes_per_second"):  # fmt: skip
            assert part in ended.stdout.decode()
        host = json.loads((await ctl(server, "doctor", "-o", "json")).stdout)
        assert host["scheme"]
    for held in host["enforcement"].values():
        held["by"] = "kernel"
    assert doctor.report(host)[-1] == "all limits are enforced"
    host["enforcement"]["cpu_weight"]["by"] = "none"
    assert doctor.report(host)[-1] == (
        "all limits are enforced (cpu_weight 100, the kernel's default, needs no holder)"
    )


async def test_without_a_daemon_a_named_socket_is_never_replaced(tmp_path: Path) -> None:
    for argv in (["run", "--", "true"], ["doctor"], ["ls"]):
        ended = await ctl(None, *argv, SANDBOXD_SOCKET=str(tmp_path / "none"))
        assert (ended.code, ended.stdout) == (125, b"")
        assert "no such file or directory" in ended.stderr
        assert ("unset SANDBOXD_SOCKET" in ended.stderr) == (argv != ["ls"])
    ended = await ctl(None, "run", "--socket", str(tmp_path / "none"), "--", "true")
    assert (ended.code, "unset SANDBOXD_SOCKET" in ended.stderr) == (125, False)


async def test_a_socket_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path):
        ended = await ctl(None, "ls", SANDBOXD_SOCKET=str(path))
        assert (ended.code, "it is no socket" in ended.stderr) == (125, True)


async def test_listing_loads_nothing_heavy() -> None:
    show = "import json, sys; from sandboxd.ctl.main import main; main(['ls']);"
    show += "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    async with served() as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", show, stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            env={**ENVIRONMENT, "SANDBOXD_SOCKET": server.path},
        )  # fmt: skip
        _stdout, stderr = await process.communicate()
    loaded = set(json.loads(stderr))
    assert "sandboxd.ctl.commands.ls" in loaded
    others = {f"sandboxd.ctl.commands.{name}" for name in COMMANDS if name != "ls"}
    assert not loaded & {"asyncio", "pydantic", "aiohttp", "subprocess", "tempfile", *others}
    assert not {"rich", "sandboxd.ctl.pretty"} & loaded


async def test_streams_in_files_and_the_end_as_json(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"\xffinput")
    out, err, meta = (tmp_path / name for name in ("out", "err", "meta"))
    options = ("--stdin-file", str(tmp_path / "in"), "--stdout", str(out), "--stderr", str(err))
    async with served() as server:
        server.commands(b"\xff\0out", b"err")
        ended = await ctl(server, "run", *options, "--meta", str(meta), "--", "prog")
        assert (ended.code, ended.stdout) == (0, b"")
        assert "err" not in ended.stderr.split("\n")[0]
        assert (out.read_bytes(), err.read_bytes()) == (b"\xff\0out", b"err")
        assert asked_of(server).stdin == b"\xffinput"
        told = json.loads(meta.read_text())
        assert (told["status"], told["exit_status"], told["stdout_bytes"]) == ("EXITED", 0, 5)
        assert "wall_seconds" in told["usage"]
        assert "stdout" not in told
        # With JSON the files are written as well, and nothing of them is printed twice.
        json_too = await ctl(server, "run", "--stdout", str(out), "-o", "json", "--", "prog")
        assert json.loads(json_too.stdout)["status"] == "EXITED"
        assert out.read_bytes() == b"\xff\0out"
        await server.fill()
        refused = await ctl(server, "run", "--meta", str(meta), "--", "prog")
        told = json.loads(meta.read_text())
        assert (told["error"]["code"], told["exit_status"]) == ("CAPACITY_EXCEEDED", 75)
        assert refused.code == 75
    assert sorted(os.listdir(tmp_path)) == ["err", "in", "meta", "out"]


async def test_the_end_as_json_goes_into_what_is_no_file_and_replaces_nothing(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("old" * 10_000)
    (tmp_path / "link").symlink_to("file")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        async with served() as server:
            for name in ("pipe", "link", "file"):
                ended = await ctl(server, "run", "--meta", str(tmp_path / name), "--", "prog")
                assert ended.code == 0, ended.stderr
                text = os.read(reader, 1 << 16) if name == "pipe" else (tmp_path / name).read_text()
                assert json.loads(text)["status"] == "EXITED"
    finally:
        os.close(reader)
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "pipe"]
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(
    ("options", "words"),
    [(("-i", "--stdin-file", "/dev/null"), "two places"),
     (("-t", "--stdout", "/dev/null"), "leave -t out"),
     (("--stdout", "/nonexistent/x"), "cannot use '/nonexistent/x'"),
     (("--stdin-file", "/nonexistent/x"), "cannot use '/nonexistent/x'"),
     (("--file", "/nonexistent/x"), "cannot use '/nonexistent/x'"),
     (("--meta", "-"), "give a file"),
     (("--stdin-file", "-"), "give a file"),
     (("--file", "/usr"), "is a directory")],
)  # fmt: skip
async def test_files_that_cannot_be_used_run_nothing(options: tuple[str, ...], words: str) -> None:
    async with served() as server:
        ended = await ctl(server, "run", *options, "--", "prog")
        assert (ended.code, words in ended.stderr) == (125, True), ended.stderr
        assert server.executions == []


async def test_a_file_that_takes_no_more_does_not_end_the_program() -> None:
    async with served() as server:
        server.commands(b"x" * 100_000)
        ended = await ctl(server, "run", "-q", "--stdout", "/dev/full", "--", "prog")
        assert ended.code == 125
        assert "/dev/full" in ended.stderr
        [execution] = server.executions
        assert execution.outcome.status is ExecutionStatus.EXITED


async def test_files_are_sent_with_a_run(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_bytes(b"print(1)\xff")
    (tmp_path / "main.py").chmod(0o750)
    (tmp_path / "a:b").write_text("colon")
    async with served() as server:
        options = [f"{tmp_path}/main.py", f"{tmp_path}/main.py:/tmp/x", f"{tmp_path}/a:b"]
        words = [word for option in options for word in ("--file", option)]
        server.commands(seconds=None)
        running = asyncio.create_task(ctl(server, "run", *words, "--", "prog"))
        shim = await server.started()
        tmp = Path(shim.request.tmp_directory)
        home = tmp.with_name("home")
        for path, mode in ((home / "main.py", 0o750), (tmp / "x", 0o750), (home / "a:b", 0o644)):
            assert path.stat().st_mode & 0o7777 == mode
        assert (tmp / "x").read_bytes() == b"print(1)\xff"
        shim.finish()
        assert (await running).code == 0
        (tmp_path / "large").write_bytes(bytes(6 << 20))
        large = await ctl(server, "run", "--file", f"{tmp_path}/large", "--", "prog")
        assert (large.code, "more than 5 MiB" in large.stderr) == (125, True)
