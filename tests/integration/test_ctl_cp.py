# SPDX-License-Identifier: Apache-2.0
"""sandboxctl cp and the client's files with a real daemon."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.client import AsyncSandbox, Sandbox
from sandboxd.errors import AccessDenied, FileConflict, FileMissing, SandboxNotFound
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.sandboxctl import COMMAND, END_SECONDS, environment

pytestmark = pytest.mark.timeout(180)
daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off")


@pytest.fixture(scope="module")
def box(daemon: Daemon) -> Iterator[Sandbox]:
    with Sandbox.create("box", socket=daemon.socket) as sandbox:
        yield sandbox


def cp(daemon: Daemon, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, "cp", *argv], env=environment(daemon), input=stdin, capture_output=True,
        timeout=END_SECONDS,
    )  # fmt: skip


def copied(daemon: Daemon, *argv: str, stdin: bytes = b"") -> bytes:
    done = cp(daemon, *argv, stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    return done.stdout


def test_a_file_there_and_back(daemon: Daemon, box: Sandbox, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    source = tmp_path / "file"
    source.write_bytes(data)
    source.chmod(0o750)
    copied(daemon, str(source), "box:new/dir/file")
    assert box.files.read("new/dir/file", encoding=None) == data
    assert box.run("stat -c %a new/dir/file").stdout == "750\n"
    copied(daemon, "box:new/dir/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o750
    (tmp_path / "into").mkdir()
    copied(daemon, f"{box.id}:new/dir/file", str(tmp_path / "into"))
    assert (tmp_path / "into/file").read_bytes() == data
    copied(daemon, str(source), "box:new/")
    copied(daemon, str(source), "box:")
    assert box.files.exists("new/file")
    assert box.files.exists("file")
    copied(daemon, "-", "box:piped", stdin=b"by pipe")
    assert copied(daemon, "box:piped", "-") == b"by pipe"


def test_a_directory_there_and_back(daemon: Daemon, box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "a/b").mkdir(parents=True)
    (source / "a/b/file").write_bytes(os.urandom(300_000))
    (source / "link").symlink_to("a/b/file")
    copied(daemon, str(source), "box:tree")
    assert (
        box.run("cat tree/link | cmp - tree/a/b/file && readlink tree/link").stdout == "a/b/file\n"
    )
    copied(daemon, "box:tree", str(tmp_path / "back"))
    assert (tmp_path / "back/a/b/file").read_bytes() == (source / "a/b/file").read_bytes()
    assert (tmp_path / "back/link").readlink() == Path("a/b/file")


def test_a_project_with_a_virtual_environment_there_and_back(
    daemon: Daemon, box: Sandbox, tmp_path: Path
) -> None:
    source = tmp_path / "project"
    (source / ".venv/bin").mkdir(parents=True)
    (source / ".venv/bin/python").symlink_to("/usr/bin/python3")
    (source / ".venv/lib64").symlink_to("lib")
    (source / "main.py").write_text("print(6 * 7)")
    (source / "up").symlink_to("../elsewhere")
    (source / ".venv").chmod(0o750)
    for path in (source / "main.py", source / ".venv/bin", source / ".venv", source):
        os.utime(path, (1000, 1000))
    copied(daemon, str(source), "box:project")
    told = box.run(
        "readlink project/.venv/bin/python project/up; project/.venv/bin/python project/main.py;"
        "stat -c %a:%Y project/.venv project project/main.py", check=True,
    )  # fmt: skip
    assert told.stdout.split() == [
        "/usr/bin/python3", "../elsewhere", "42", "750:1000", "755:1000", "644:1000",
    ]  # fmt: skip
    done = cp(daemon, "box:project", str(tmp_path / "back"))
    assert done.returncode == 0
    assert sorted(done.stderr.decode().splitlines()) == [
        "sandboxctl: leaving out .venv/bin/python: a link that leads to /usr/bin/python3",
        "sandboxctl: leaving out up: a link that leads to ../elsewhere",
    ]
    back = tmp_path / "back"
    assert (back / ".venv/lib64").readlink() == Path("lib")
    for path in (back, back / ".venv", back / "main.py"):
        assert path.stat().st_mtime == 1000
    assert (back / ".venv").stat().st_mode & 0o777 == 0o750
    copied(daemon, "box:project/main.py", str(tmp_path / "main.py"))
    copied(daemon, str(tmp_path / "main.py"), "box:again.py")
    assert box.run("stat -c %Y again.py").stdout == "1000\n"


def test_paths_are_those_that_programs_have(daemon: Daemon, box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("raise ValueError('here')\n")
    copied(daemon, str(tmp_path / "f"), "box:/tmp/job.py")
    copied(daemon, str(tmp_path / "f"), "box:/home/sandbox/there.py")
    assert box.files.exists("there.py")
    for name in ("/tmp/job.py", "there.py"):
        traceback = box.run(["python3", name], cwd="/tmp" if name[0] == "/" else None).stderr
        [line] = [line for line in traceback.splitlines() if line.lstrip().startswith("File")]
        path = line.split('"')[1]
        assert (
            box.files.read(box.run(["realpath", path]).stdout.strip())
            == "raise ValueError('here')\n"
        )
    assert copied(daemon, "box:/tmp/job.py", "-") == b"raise ValueError('here')\n"
    home = box.run("echo $HOME").stdout.strip()
    assert box.files.read(f"{home}/there.py") == box.files.read("there.py")
    (tmp_path / "tree").mkdir()
    copied(daemon, str(tmp_path / "tree"), "box:/tmp")
    assert box.run(["test", "-d", "/tmp/tree"]).ok
    for path in ("/etc/passwd", "/nosuch/x"):
        done = cp(daemon, f"box:{path}", str(tmp_path / "x"))
        assert (done.returncode, path.encode() in done.stderr) == (125, True)
        assert b"not the sandbox's own" in done.stderr
        with pytest.raises(AccessDenied, match=path):
            box.files.write(path, "x")


def test_what_cannot_be_copied_is_said(daemon: Daemon, box: Sandbox, tmp_path: Path) -> None:
    box.files.make_dir("only/dir")
    for argv, word in (
        (["box:nosuch", str(tmp_path / "x")], b"nosuch"),
        (["nosuch:file", str(tmp_path / "x")], b"nosuch"),
        ([str(tmp_path / "nosuch"), "box:x"], b"nosuch"),
        (["box:../file", str(tmp_path / "x")], b"`..`"),
        ([str(tmp_path / "nosuch"), "box:../x"], b"`..`"),
        (["box:a", "box:b"], b"exactly one side"),
        (["a", "b"], b"exactly one side"),
        (["box:only", "-"], b"is a directory"),
        (["-", "box:only"], b"name a file"),
    ):
        done = cp(daemon, *argv)
        assert done.returncode == 125, argv
        assert word in done.stderr, argv
        assert b"Errno" not in done.stderr, argv
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_client(box: Sandbox) -> None:
    files = box.files
    files.write("deep/er/text", "grüße\n", mode=0o600)
    assert files.read("deep/er/text") == "grüße\n"
    files.write("deep/er/bytes", bytes(range(256)))
    assert files.read("deep/er/bytes", encoding=None) == bytes(range(256))
    files.write("deep/pieces", (b"x" * 1000 for _ in range(1000)))
    assert sum(map(len, files.stream("deep/pieces"))) == 1_000_000
    entries = {entry.path: entry for entry in files.list("deep", depth=2)}
    assert set(entries) == {"deep/er", "deep/er/text", "deep/er/bytes", "deep/pieces"}
    text = entries["deep/er/text"]
    assert (text.type, text.size_bytes, text.mode, text.name) == ("file", 8, 0o600, "text")
    assert text.modified_at.tzinfo is not None
    files.rename("deep/er/text", "moved")
    assert (files.exists("moved"), files.exists("deep/er/text")) == (True, False)
    assert files.exists("deep")
    files.make_dir("deep/new", mode=0o700)
    files.make_dir("deep/new")
    files.remove("deep")
    assert not files.exists("deep")
    box.run(["python3", "-c", r"open(b'raw\xff', 'w').write('x')"], check=True)
    [raw] = [entry for entry in files.list() if entry.name.startswith("raw")]
    assert files.read(raw.path) == "x"


def test_refusals_of_files_are_their_classes(daemon: Daemon, box: Sandbox) -> None:
    box.files.make_dir("d")
    with pytest.raises(FileMissing):
        box.files.read("nosuch")
    with pytest.raises(FileConflict):
        box.files.read("d")
    gone = Sandbox.create(socket=daemon.socket)
    gone.files._flow._sandbox_id = "abcdefghijkl"
    with pytest.raises(SandboxNotFound):
        gone.files.exists("x")


async def test_the_same_files_for_asyncio(daemon: Daemon) -> None:
    async with await AsyncSandbox.create(socket=daemon.socket) as sandbox:
        files = sandbox.files
        await files.write("a/text", "x")
        await files.write("a/pieces", (b"y" * 1000 for _ in range(1000)))
        assert await files.read("a/text") == "x"
        assert len(await files.read("a/pieces", encoding=None)) == 1_000_000
        assert sum([len(piece) async for piece in files.stream("a/pieces")]) == 1_000_000
        assert {entry.name for entry in await files.list("a")} == {"text", "pieces"}
        await files.rename("a/text", "b")
        assert (await files.exists("b"), await files.exists("a/text")) == (True, False)
        await files.make_dir("c/d")
        await files.remove("c")
        with pytest.raises(FileMissing):
            await files.read("c/d")
        await files.write("/tmp/x", "by a program's path")
        assert (await sandbox.run("cat /tmp/x")).stdout == await files.read("/tmp/x")
        with pytest.raises(AccessDenied):
            await files.read("/etc/passwd")
