# SPDX-License-Identifier: Apache-2.0
"""Trees as tar, out and in: what tar(1) and the standard library read and write, and no more."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from tests.contract.probes import python, refused
from tests.contract.test_files import get, listed, put, run
from tests.harness import Daemon


def archive(sandbox: Any, path: str = "") -> str:
    return f"/v1/sandboxes/{sandbox['id']}/archive/{path}"


def packed(daemon: Daemon, sandbox: Any, path: str = "") -> tarfile.TarFile:
    """A tree as the standard library reads it."""
    answer = daemon.request("GET", archive(sandbox, path))
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "application/x-tar"
    return tarfile.open(fileobj=io.BytesIO(answer.body), errors="surrogateescape")


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=form, errors="surrogateescape") as made:
        for info, data in members:
            made.addfile(info, io.BytesIO(data))
    return written.getvalue()


def unpack(daemon: Daemon, sandbox: Any, data: bytes, path: str = "") -> None:
    answer = daemon.request("PUT", archive(sandbox, path), data)
    assert answer.status == 204, answer.body


def test_a_tree_comes_out_whole(daemon: Daemon, sandbox: Any) -> None:
    long = "n" * 200
    run(
        daemon,
        sandbox,
        f"mkdir -p a/b/{long}; printf hello > a/b/f; chmod 750 a/b/f; ln -s b a/l;"
        f" printf deep > a/b/{long}/{long}; : > a/empty; mkfifo a/p; ln a/b/f a/hard",
    )
    tree = packed(daemon, sandbox, "a")
    kinds = {m.name: m.type for m in tree}
    assert kinds == {
        "b": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "b/f": tarfile.REGTYPE,
        "hard": tarfile.REGTYPE, "empty": tarfile.REGTYPE, f"b/{long}": tarfile.DIRTYPE,
        f"b/{long}/{long}": tarfile.REGTYPE,
    }  # fmt: skip
    file = tree.extractfile("b/f")
    assert file is not None
    assert file.read() == b"hello"
    info = tree.getmember("b/f")
    assert (info.mode, info.uid, info.gid, info.uname) == (0o750, 0, 0, "")
    assert tree.getmember("l").linkname == "b"
    single = packed(daemon, sandbox, "a/b/f")
    assert single.getnames() == ["f"]
    assert packed(daemon, sandbox, "a/b/f").getmember("f").size == 5
    run(daemon, sandbox, "mkdir void")
    assert packed(daemon, sandbox, "void").getnames() == []
    refused(daemon.request("GET", archive(sandbox, "none")), 404, "FILE_NOT_FOUND")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tree_goes_in_whole(daemon: Daemon, sandbox: Any, form: int) -> None:
    name = "d/" + "x" * 60 + "/" + "y" * 90
    data = bytes(range(256)) * 999
    made = tar(
        member("d", type=tarfile.DIRTYPE, mode=0o755), member(name, data, mode=0o640, mtime=1000),
        member("./d/l", type=tarfile.SYMTYPE, linkname="../other"), member("no/dir/before", b"1"),
        member("d/hard", type=tarfile.LNKTYPE, linkname="no/dir/before"), member("empty"),
        member("tool", b"#!/bin/sh\necho ran", mode=0o4755), form=form,
    )  # fmt: skip
    unpack(daemon, sandbox, made)
    assert get(daemon, sandbox, name) == data
    assert get(daemon, sandbox, "d/hard") == b"1"
    assert get(daemon, sandbox, "empty") == b""
    assert run(daemon, sandbox, f"stat -c %a:%Y:%h {name}; ./tool; stat -c %a tool; cd d;"
               "readlink l; id -u > u; find . ! -user $(cat u)").split() == [
        "640:1000:1", "ran", "755", "../other",
    ]  # fmt: skip
    # Once more over itself: what is there is replaced.
    unpack(daemon, sandbox, made)
    assert get(daemon, sandbox, name) == data


def test_what_comes_out_goes_in(daemon: Daemon, sandbox: Any) -> None:
    code = "import os; os.makedirs(b'a/\\xff'); open(b'a/\\xff/\\xfe', 'w').write('in')"
    assert daemon.execute(sandbox["id"], python(code))["exit_code"] == 0
    run(daemon, sandbox, f"mkdir -p a/{'q' * 200}/{'r' * 200}; ln -s nowhere a/broken; mkdir b")
    data = daemon.request("GET", archive(sandbox, "a")).body
    unpack(daemon, sandbox, data, "b")
    assert run(daemon, sandbox, "diff -r --no-dereference a b && echo same") == "same\n"


@pytest.mark.parametrize(
    "bad",
    [member("/etc/x", b"x"), member("../x", b"x"), member("a/../../x", b"x"),
     member("h", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
     member("h", type=tarfile.LNKTYPE, linkname="../passwd"),
     member("dev", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
     member("dev", type=tarfile.BLKTYPE, devmajor=1, devminor=3),
     member("pipe", type=tarfile.FIFOTYPE), member("what", type=b"Z"),
     member("s", type=tarfile.GNUTYPE_SPARSE),
     member("s", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
     member("big", pax_headers={"comment": "x" * 100_000})],
)  # fmt: skip
def test_members_that_are_refused(daemon: Daemon, sandbox: Any, bad: Any) -> None:
    data = tar(member("before", b"1"), bad, member("after", b"2"))
    answer = daemon.request("PUT", archive(sandbox), data)
    error = refused(answer, 400, "INVALID_REQUEST")
    # What came before stays, and the answer says how much that is.
    found = set(listed(daemon, sandbox))
    assert error["details"]["members_unpacked"] == len(found & {"before"})
    assert "after" not in found
    assert found <= {"before", "a"}


def test_links_that_lead_out_are_made_and_never_followed(daemon: Daemon, sandbox: Any) -> None:
    targets = {"python": "/usr/bin/python3", "up": "../../x", "a/l": "../../x", "etc": "/etc"}
    links = [
        member(name, type=tarfile.SYMTYPE, linkname=target) for name, target in targets.items()
    ]
    unpack(daemon, sandbox, tar(*links, member("after", b"2")))
    told = run(daemon, sandbox, "readlink python up a/l etc; ./python -c 'print(6 * 7)'")
    assert told.split() == [*targets.values(), "42"]
    answer = daemon.request("PUT", archive(sandbox), tar(member("etc/x", b"x")))
    refused(answer, 403, "ACCESS_DENIED")
    # What came out goes in again, links and all.
    run(daemon, sandbox, "mkdir project copy; cp -d python up project")
    data = daemon.request("GET", archive(sandbox, "project")).body
    unpack(daemon, sandbox, data, "copy")
    assert run(daemon, sandbox, "readlink copy/python").strip() == "/usr/bin/python3"


def test_directories_keep_their_modes_and_times(daemon: Daemon, sandbox: Any) -> None:
    kind: Any = tarfile.DIRTYPE
    made = tar(
        member("d", type=kind, mode=0o555, mtime=1000),
        member("d/e", type=kind, mode=0o710, mtime=1000),
        member("d/e/f", b"x", mtime=2000), member("d/g", b"x"),
    )  # fmt: skip
    unpack(daemon, sandbox, made)
    assert run(daemon, sandbox, "stat -c %a:%Y d d/e; stat -c %Y d/e/f").split() == [
        "555:1000", "710:1000", "2000",
    ]  # fmt: skip
    unpack(daemon, sandbox, made)


def test_streams_that_are_no_tar(daemon: Daemon, sandbox: Any) -> None:
    whole = tar(member("f", b"x" * 5000))
    for data in (b"GARBAGE" * 1000, whole[:700], whole[:1000], whole[:4000], b"x"):
        refused(daemon.request("PUT", archive(sandbox), data), 400, "INVALID_REQUEST")
    assert "f" not in listed(daemon, sandbox)
    put(daemon, sandbox, "file", b"x")
    refused(daemon.request("PUT", archive(sandbox, "file"), whole), 409, "FILE_CONFLICT")
    refused(daemon.request("PUT", archive(sandbox, "none"), whole), 404, "FILE_NOT_FOUND")


def test_members_stay_in_the_home_whatever_is_in_their_way(daemon: Daemon, sandbox: Any) -> None:
    run(daemon, sandbox, "ln -s /etc out; ln -s ../.. up; mkdir in; ln -s in inside; mkfifo p")
    for name in ("out/x", "up/x"):
        answer = daemon.request("PUT", archive(sandbox), tar(member(name, b"x")))
        refused(answer, 403, "ACCESS_DENIED")
    unpack(daemon, sandbox, tar(member("inside/x", b"x"), member("p", b"file")))
    assert get(daemon, sandbox, "in/x") == b"x"
    assert get(daemon, sandbox, "p") == b"file"
