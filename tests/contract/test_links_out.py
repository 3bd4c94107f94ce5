# SPDX-License-Identifier: Apache-2.0
"""No link leads the file API out of a home: planted before, or swapped while requests are served.

The canaries outside are open to everybody: only where the path is resolved do they have protection.
"""

from __future__ import annotations

import http.client
import io
import os
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.probes import eventually, python, refused
from tests.contract.test_archives import archive, member, tar
from tests.contract.test_files import files, get, listed, put
from tests.harness import Daemon

SECRET = b"canary outside"


@pytest.fixture
def outside(daemon: Daemon) -> Iterator[Path]:
    """Canaries that anybody may read and write, and that nobody has touched in the end."""
    top = daemon.state / "canaries"
    (top / "in").mkdir(parents=True)
    for path in (top / "file", top / "in" / "file", top / "in" / "inner"):
        path.write_bytes(SECRET)
        path.chmod(0o666)
    for path in (top, top / "in"):
        path.chmod(0o777)
    before = state(top)
    yield top
    assert state(top) == before
    shutil.rmtree(top)


def state(top: Path) -> dict[str, tuple[Any, ...]]:
    """All that could show a touch: names, content, owner, mode, links and times."""
    found = {}
    for path in [top, *sorted(top.rglob("*"))]:
        stat = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (
            content, stat.st_uid, stat.st_mode, stat.st_nlink, stat.st_mtime_ns, stat.st_ino,
        )  # fmt: skip
    return found


@pytest.mark.parametrize("how", ["absolute", "relative", "chain", "proc-root", "proc-cwd", "deep"])
def test_planted_links(daemon: Daemon, sandbox: Any, outside: Path, how: str) -> None:
    home = daemon.state / "sandboxes" / sandbox["id"] / "home"
    target = {
        "absolute": str(outside),
        "relative": os.path.relpath(outside, home),
        "chain": "second",
        "proc-root": f"/proc/self/root{outside}",
        "proc-cwd": f"/proc/self/cwd/{os.path.relpath(outside, home)}",
        "deep": f"a/../../{os.path.relpath(outside, home.parent)}",
    }[how]
    code = (
        "import os, sys\n"
        "target, real = sys.argv[1:]\n"
        "os.makedirs('a/b')\n"
        "os.symlink(target, 'dir')\n"
        "os.symlink(real, 'second')\n"
        "os.symlink(target + '/file', 'file')\n"
        "os.symlink(target, 'a/b/dir')\n"
    )
    made = daemon.execute(sandbox["id"], python(code, target, str(outside)))
    assert made["exit_code"] == 0, made["stderr"]
    for path in ("dir/file", "dir/in/file", "file", "second/file"):
        answer = daemon.request("GET", files(sandbox, path))
        assert answer.status >= 400, path
        assert SECRET not in answer.body
        assert daemon.request("HEAD", files(sandbox, path)).status >= 400
        assert daemon.request("GET", archive(sandbox, path)).status >= 400
    for path in ("dir/new", "dir/in/new", "dir/file", "second/file"):
        assert daemon.request("PUT", files(sandbox, path) + "?parents=true", b"x").status >= 400
        assert daemon.request("DELETE", files(sandbox, path)).status >= 400
        assert daemon.request("POST", files(sandbox, f"{path}?op=mkdir")).status >= 400
        assert daemon.request("POST", files(sandbox, f"{path}?op=rename&to=mine")).status >= 400
        assert daemon.request("POST", files(sandbox, f"a/b?op=rename&to={path}")).status >= 400
        answer = daemon.request("PUT", archive(sandbox), tar(member(path, b"x")))
        assert answer.status >= 400
    for place in ("directories", "archive"):
        answer = daemon.request("GET", f"/v1/sandboxes/{sandbox['id']}/{place}/dir")
        assert answer.status >= 400
    assert daemon.request("PUT", archive(sandbox, "dir"), tar(member("x", b"x"))).status >= 400
    hard = tar(member("hard", type=tarfile.LNKTYPE, linkname="dir/file"))
    assert daemon.request("PUT", archive(sandbox), hard).status >= 400
    assert SECRET not in daemon.request("GET", archive(sandbox)).body
    assert set(listed(daemon, sandbox, query="?depth=9")) == {
        "a", "a/b", "a/b/dir", "dir", "file", "second",
    }  # fmt: skip
    # The links themselves can be replaced and deleted.
    put(daemon, sandbox, "file", b"mine")
    assert get(daemon, sandbox, "file") == b"mine"
    for path in ("dir", "a"):
        assert daemon.request("DELETE", files(sandbox, path)).status == 204
    refused(daemon.request("GET", files(sandbox, "dir")), 404, "FILE_NOT_FOUND")


# Each of `d` and `f` is by turns the sandbox's own and a link to the canary of its kind.
SWAP = """
import itertools, os, sys
outside = sys.argv[1]
for turn in itertools.count():
    for name, target, make in (
        ("d", outside + "/in", os.mkdir), ("f", outside + "/file", lambda n: open(n, "w").close()),
        ("sub/d", outside + "/in", os.mkdir),
    ):
        for step in (
            lambda: os.mkdir("sub"), lambda: make(name), lambda: os.rename(name, name + ".real"),
            lambda: os.symlink(target, name), lambda: os.unlink(name),
            lambda: os.rename(name + ".real", name),
            lambda: turn % 50 or open(name + "/inner", "w").write("inside"),
        ):
            try:
                step()
            except OSError:
                pass
    if turn == 0:
        print("swapping", flush=True)
"""


@pytest.mark.timeout(900)
def test_links_swapped_while_the_api_works(
    daemon: Daemon, sandbox: Any, outside: Path, soak_count: Callable[[int], int]
) -> None:
    swapper = daemon.execute(
        sandbox["id"], python(SWAP, str(outside)), wait=False, timeout_seconds=900
    )
    output = f"/v1/sandboxes/{sandbox['id']}/executions/{swapper['id']}/output"
    eventually(lambda: daemon.request("GET", output).body)
    packed = tar(member("tarred", b"x"), member("inner", b"x"))
    work: list[tuple[str, str, bytes | None]] = [
        ("GET", files(sandbox, "f"), None),
        ("GET", files(sandbox, "d/inner"), None),
        ("GET", files(sandbox, "sub/d/file"), None),
        ("PUT", files(sandbox, "d/new"), b"x"),
        ("PUT", files(sandbox, "f"), b"x"),
        ("PUT", files(sandbox, "sub/d/deep/new?parents=true"), b"x"),
        ("POST", files(sandbox, "d/made?op=mkdir"), None),
        ("POST", files(sandbox, "d/inner?op=rename&to=sub/d/moved"), None),
        ("GET", f"/v1/sandboxes/{sandbox['id']}/directories/d?depth=3", None),
        ("GET", archive(sandbox, "d"), None),
        ("GET", archive(sandbox), None),
        ("PUT", archive(sandbox, "d"), packed),
        ("DELETE", files(sandbox, "d/inner"), None),
        ("DELETE", files(sandbox, "d/in"), None),
        ("DELETE", files(sandbox, "f"), None),
        ("DELETE", files(sandbox, "sub/d"), None),
    ]
    done: Counter[tuple[str, bool]] = Counter()
    for number in range(soak_count(10_000)):
        method, target, body = work[number % len(work)]
        try:
            answer = daemon.request(method, target, body, timeout=30)
        except (http.client.IncompleteRead, ConnectionResetError):
            # A file that is cut off while it is read.
            assert method == "GET"
            done["cut off", True] += 1
            continue
        assert answer.status < 500, (method, target, answer.body)
        assert SECRET not in answer.body, (method, target)
        if answer.status == 200 and "/archive/" in target:
            check_archive(answer.body)
        done[method, answer.status < 300] += 1
    # Else nothing would be proven: each verb met the sandbox's own as well as links.
    assert all(done[method, True] for method in ("GET", "PUT", "DELETE")), done
    assert done["GET", False], done
    assert daemon.ok("GET", output.removesuffix("/output"))["status"] == "RUNNING"


def check_archive(data: bytes) -> None:
    """An archive of a tree that changes meanwhile is one all the same."""
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        for info in read:
            file = read.extractfile(info) if info.isreg() else None
            assert file is None or len(file.read()) == info.size


def test_a_hard_link_to_another_s_file_is_not_the_sandbox_s(
    daemon: Daemon, sandbox: Any, outside: Path
) -> None:
    # A host without fs.protected_hardlinks lets a program do this; here root does.
    home = daemon.state / "sandboxes" / sandbox["id"] / "home"
    (home / "hard").hardlink_to(outside / "file")
    refused(daemon.request("GET", files(sandbox, "hard")), 403, "ACCESS_DENIED")
    refused(daemon.request("GET", archive(sandbox, "hard")), 403, "ACCESS_DENIED")
    assert SECRET not in daemon.request("GET", archive(sandbox)).body
    assert put(daemon, sandbox, "hard", b"mine") == 204
    assert get(daemon, sandbox, "hard") == b"mine"
    assert (outside / "file").read_bytes() == SECRET
