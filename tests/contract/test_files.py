# SPDX-License-Identifier: Apache-2.0
"""The file API: bytes in and out, whole or not at all, and the sandbox's own."""

from __future__ import annotations

import base64
import http.client
import os
from datetime import datetime
from typing import Any

import pytest

from tests.contract.caller import CallerOf
from tests.contract.probes import python, refused, uid_inside
from tests.harness import Daemon


def files(sandbox: Any, path: str = "") -> str:
    """The target of a path in the home."""
    return f"/v1/sandboxes/{sandbox['id']}/files/{path}"


def listed(daemon: Daemon, sandbox: Any, path: str = "", query: str = "") -> dict[str, Any]:
    """Entries below a directory, by path."""
    answer = daemon.ok("GET", f"/v1/sandboxes/{sandbox['id']}/directories/{path}{query}")
    assert set(answer) == {"entries", "truncated"}
    return {entry["path"]: entry for entry in answer["entries"]}


def put(daemon: Daemon, sandbox: Any, path: str, data: bytes, query: str = "") -> int:
    """The status of a PUT that must succeed."""
    answer = daemon.request("PUT", files(sandbox, path) + query, data)
    assert answer.status in {201, 204}, answer.body
    assert answer.body == b""
    return answer.status


def get(daemon: Daemon, sandbox: Any, path: str) -> bytes:
    """A file's bytes."""
    answer = daemon.request("GET", files(sandbox, path))
    assert answer.status == 200, answer.body
    return answer.body


def run(daemon: Daemon, sandbox: Any, script: str) -> str:
    """What a shell script in the home prints; it has to succeed."""
    ended = daemon.execute(sandbox["id"], f"set -e; {script}")
    assert ended["exit_code"] == 0, ended["stderr"]
    text: str = ended["stdout"]
    return text


def test_what_is_put_is_what_comes_back_and_what_a_command_sees(
    daemon: Daemon, sandbox: Any
) -> None:
    data = bytes(range(256)) * 1000
    assert put(daemon, sandbox, "data", data) == 201
    assert get(daemon, sandbox, "data") == data
    assert run(daemon, sandbox, "wc -c < data; id -u; stat -c %u:%a data").split() == [
        str(len(data)), str(uid := uid_inside(daemon, sandbox)), f"{uid}:644",
    ]  # fmt: skip
    assert put(daemon, sandbox, "data", b"less") == 204
    assert get(daemon, sandbox, "data") == b"less"
    assert put(daemon, sandbox, "empty", b"") == 201
    assert get(daemon, sandbox, "empty") == b""


def test_modes(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "tool", b"#!/bin/sh\necho ran\n", "?mode=0755")
    assert run(daemon, sandbox, "./tool") == "ran\n"
    # A new version of a program is still one.
    put(daemon, sandbox, "tool", b"#!/bin/sh\necho again\n")
    assert run(daemon, sandbox, "./tool") == "again\n"
    put(daemon, sandbox, "secret", b"x", "?mode=600")
    assert run(daemon, sandbox, "stat -c %a secret") == "600\n"
    for mode in ("4755", "0999", "-1", "rw", ""):
        answer = daemon.request("PUT", files(sandbox, "new") + f"?mode={mode}", b"x")
        refused(answer, 400, "INVALID_REQUEST")
    refused(daemon.request("GET", files(sandbox, "new")), 404, "FILE_NOT_FOUND")


def test_a_program_that_reads_never_sees_half_a_file(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "f", b"a" * 300_000)
    code = (
        "import os\n"
        "for _ in range(3000):\n"
        "    data = open('f', 'rb').read()\n"
        "    assert data.count(data[:1]) == len(data) == 300000, len(data)\n"
    )
    reader = daemon.execute(sandbox["id"], python(code), wait=False)
    for letter in b"bcdefghij":
        put(daemon, sandbox, "f", bytes([letter]) * 300_000)
    assert daemon.wait(reader)["exit_code"] == 0, daemon.wait(reader)["stderr"]


def test_parents(daemon: Daemon, sandbox: Any) -> None:
    answer = daemon.request("PUT", files(sandbox, "a/b/c"), b"x")
    refused(answer, 404, "FILE_NOT_FOUND")
    assert put(daemon, sandbox, "a/b/c", b"x", "?parents=true") == 201
    assert run(daemon, sandbox, "rm -r a; echo gone") == "gone\n"


def test_an_upload_that_breaks_off_leaves_nothing(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "kept", b"before")
    head = f"PUT {files(sandbox, 'kept')} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    with daemon.connect() as connection:
        connection.sendall(head.encode() + b"x" * 5000)
    # Its staging file is the daemon's to clear away; the sandbox sees nothing of it.
    assert get(daemon, sandbox, "kept") == b"before"
    assert set(listed(daemon, sandbox)) == {"kept"}


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [("0-0", 0, 0), ("5-9", 5, 9), ("990-", 990, 999), ("-10", 990, 999), ("0-99999", 0, 999),
     ("-5000", 0, 999), ("999-999", 999, 999)],
)  # fmt: skip
def test_ranges(daemon: Daemon, sandbox: Any, asked: str, first: int, last: int) -> None:
    data = bytes(i % 251 for i in range(1000))
    put(daemon, sandbox, "data", data)
    answer = daemon.request("GET", files(sandbox, "data"), Range=f"bytes={asked}")
    assert answer.status == 206
    assert answer.body == data[first : last + 1]
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/1000"


def test_ranges_that_cannot_be_had(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "data", b"0123456789")
    for asked in ("10-", "100-200", "-0"):
        answer = daemon.request("GET", files(sandbox, "data"), Range=f"bytes={asked}")
        refused(answer, 416, "RANGE_NOT_SATISFIABLE")
    for asked in ("5-1", "x", "1-2,4-5", "-"):
        answer = daemon.request("GET", files(sandbox, "data"), Range=f"bytes={asked}")
        assert (answer.status, answer.body) == (200, b"0123456789")


def test_head(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "data", b"x" * 12345, "?mode=0640")
    answer = daemon.request("HEAD", files(sandbox, "data"))
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Content-Length"] == "12345"
    assert answer.headers["X-File-Type"] == "file"
    assert answer.headers["X-File-Mode"] == "0640"
    assert answer.headers["Last-Modified"].endswith("GMT")
    assert daemon.request("HEAD", files(sandbox)).headers["X-File-Type"] == "directory"
    assert daemon.request("HEAD", files(sandbox, "none")).status == 404


def test_delete(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "d/e/f", b"x", "?parents=true")
    put(daemon, sandbox, "g", b"x")
    run(daemon, sandbox, "ln -s d link")
    for path in ("g", "link", "d"):
        assert daemon.request("DELETE", files(sandbox, path)).status == 204
        refused(daemon.request("DELETE", files(sandbox, path)), 404, "FILE_NOT_FOUND")
    assert listed(daemon, sandbox) == {}
    for path in ("", "%2e", "./", "/home/sandbox"):
        refused(daemon.request("DELETE", files(sandbox, path)), 400, "INVALID_REQUEST")


def test_mkdir_and_rename(daemon: Daemon, sandbox: Any) -> None:
    assert daemon.request("POST", files(sandbox, "d?op=mkdir&mode=0750")).status == 201
    assert run(daemon, sandbox, "stat -c %a:%u d").startswith("750:")
    refused(daemon.request("POST", files(sandbox, "d?op=mkdir")), 409, "FILE_CONFLICT")
    refused(daemon.request("POST", files(sandbox, "x/y?op=mkdir")), 404, "FILE_NOT_FOUND")
    assert daemon.request("POST", files(sandbox, "x/y?op=mkdir&parents=true")).status == 201
    assert daemon.request("POST", files(sandbox, "x/y?op=mkdir&parents=true")).status == 201
    put(daemon, sandbox, "a", b"1")
    put(daemon, sandbox, "b", b"2")
    assert daemon.request("POST", files(sandbox, "a?op=rename&to=b")).status == 204
    assert get(daemon, sandbox, "b") == b"1"
    assert daemon.request("POST", files(sandbox, "b?op=rename&to=d/c%20%2B+d")).status == 204
    assert run(daemon, sandbox, "cat 'd/c + d'") == "1"
    refused(daemon.request("POST", files(sandbox, "d?op=rename&to=d/e")), 409, "FILE_CONFLICT")
    refused(daemon.request("POST", files(sandbox, "x?op=rename&to=d")), 409, "FILE_CONFLICT")
    refused(daemon.request("POST", files(sandbox, "no?op=rename&to=d")), 404, "FILE_NOT_FOUND")
    for query in (
        "",
        "?op=copy&to=x",
        "?op=rename",
        "?op=rename&to=../x",
        "?op=mkdir&to=x",
        "?op=rename&to=x&mode=0644",
        "?op=rename&to=%00",
        "?op=rename&to=",
        "?to=b",
    ):
        answer = daemon.request("POST", files(sandbox, "d") + query)
        refused(answer, 400, "INVALID_REQUEST")


def test_listing(daemon: Daemon, sandbox: Any) -> None:
    run(daemon, sandbox, "mkdir -p a/b/c; echo x > a/f; ln -s a/f l; mkfifo p; touch -d @0 old")
    found = listed(daemon, sandbox)
    assert list(found) == ["a", "l", "old", "p"]
    assert {path: entry["type"] for path, entry in found.items()} == {
        "a": "directory", "l": "symlink", "old": "file", "p": "fifo",
    }  # fmt: skip
    assert found["l"]["target"] == "a/f"
    assert datetime.fromisoformat(found["old"]["modified_at"]).timestamp() == 0
    assert set(found["old"]) == {
        "name", "path", "type", "size_bytes", "mode", "modified_at", "target",
    }  # fmt: skip
    assert list(listed(daemon, sandbox, query="?depth=3")) == [
        "a", "a/b", "a/b/c", "a/f", "l", "old", "p",
    ]  # fmt: skip
    assert list(listed(daemon, sandbox, "a")) == ["a/b", "a/f"]
    assert listed(daemon, sandbox, "a")["a/f"]["name"] == "f"
    assert list(listed(daemon, sandbox, "a/f", "?depth=0")) == ["a/f"]
    assert len(listed(daemon, sandbox, query="?limit=2")) == 2
    target = f"/v1/sandboxes/{sandbox['id']}/directories"
    assert daemon.ok("GET", f"{target}?limit=2")["truncated"] is True
    assert daemon.ok("GET", f"{target}?limit=4")["truncated"] is False
    refused(daemon.request("GET", f"{target}/old"), 409, "FILE_CONFLICT")
    refused(daemon.request("GET", f"{target}/none"), 404, "FILE_NOT_FOUND")
    for query in ("depth=-1", "depth=x", "limit=0", "limit=1000000", "what=1"):
        refused(daemon.request("GET", f"{target}?{query}"), 400, "INVALID_REQUEST")


def test_names_that_are_not_utf8(daemon: Daemon, sandbox: Any) -> None:
    code = "import os; os.mkdir(b'd\\xff'); open(b'd\\xff/\\xfe f', 'w').write('in')"
    assert daemon.execute(sandbox["id"], python(code))["exit_code"] == 0
    entry = listed(daemon, sandbox)["d�"]
    assert base64.b64decode(entry["path_base64"]) == b"d\xff"
    below = listed(daemon, sandbox, "d%ff")["d�/� f"]
    assert base64.b64decode(below["path_base64"]) == b"d\xff/\xfe f"
    assert get(daemon, sandbox, "d%ff/%fe%20f") == b"in"
    put(daemon, sandbox, "d%FF/%fd", b"new")
    answer = daemon.request("POST", files(sandbox, "d%ff/%fd?op=rename&to=d%ff/%fc"))
    assert answer.status == 204
    assert run(daemon, sandbox, "ls d* | wc -l") == "2\n"
    assert get(daemon, sandbox, "d%ff/%fc") == b"new"
    assert daemon.request("DELETE", files(sandbox, "d%ff")).status == 204


@pytest.mark.parametrize(
    "path",
    ["..", "../x", "a/../../x", "%2e%2e/x", "%2e%2e%2fx", "a%2f..%2f..", "..%2F..%2Fetc%2Fpasswd",
     "a%00b", "%00", "x" * 256, "a/" * 2500],
)  # fmt: skip
def test_paths_that_are_refused_by_themselves(daemon: Daemon, sandbox: Any, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        body = b"x" if method == "PUT" else None
        refused(daemon.request(method, files(sandbox, path), body), 400, "INVALID_REQUEST")
    for place in ("directories", "archive"):
        answer = daemon.request("GET", f"/v1/sandboxes/{sandbox['id']}/{place}/{path}")
        refused(answer, 400, "INVALID_REQUEST")


def test_what_is_no_file(daemon: Daemon, sandbox: Any) -> None:
    code = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    run(daemon, sandbox, "mkdir d; mkfifo p; touch f; ln -s p to-p; ln -s loop loop")
    assert daemon.execute(sandbox["id"], python(code))["exit_code"] == 0
    for path in ("d", "p", "s", "to-p", "loop", ""):
        for place in ("files", "archive"):
            if place == "archive" and path in {"d", ""}:
                continue
            answer = daemon.request("GET", f"/v1/sandboxes/{sandbox['id']}/{place}/{path}")
            refused(answer, 409, "FILE_CONFLICT")
    for path in ("d", "p", "s", "f/x"):
        refused(daemon.request("PUT", files(sandbox, path), b"x"), 409, "FILE_CONFLICT")
    assert daemon.request("HEAD", files(sandbox, "p")).status == 409
    for path in ("p", "s", "loop"):
        assert daemon.request("DELETE", files(sandbox, path)).status == 204


def test_files_without_permissions_are_still_the_owner_s(daemon: Daemon, sandbox: Any) -> None:
    run(daemon, sandbox, "mkdir -p d/e; echo x > d/e/f; chmod 0 d/e/f d/e d; echo y > g; chmod 0 g")
    answer = daemon.request("GET", files(sandbox, "g"))
    assert answer.body == b"y\n" or answer.code == "ACCESS_DENIED"
    for path in ("g", "d"):
        assert daemon.request("DELETE", files(sandbox, path)).status == 204
    assert listed(daemon, sandbox) == {}


def test_a_lease_holds_nobody_up(daemon: Daemon, sandbox: Any) -> None:
    put(daemon, sandbox, "f", b"leased")
    code = (
        "import fcntl, os, sys, time\n"
        "fd = os.open('f', os.O_RDWR)\n"
        "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print('held', flush=True)\n"
        "import signal; signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "time.sleep(600)\n"
    )
    holder = daemon.execute(sandbox["id"], python(code), wait=False)
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{holder['id']}"
    while not daemon.request("GET", f"{target}/output").body:
        assert daemon.ok("GET", target)["status"] == "RUNNING"
    answer = daemon.request("GET", files(sandbox, "f"), timeout=20)
    refused(answer, 409, "FILE_CONFLICT")
    daemon.ok("POST", f"{target}/kill", {})


def test_released_and_suspended(daemon: Daemon, create: Any) -> None:
    made = create()
    put(daemon, made, "f", b"x")
    daemon.ok("POST", f"/v1/sandboxes/{made['id']}/suspend")
    assert get(daemon, made, "f") == b"x"
    put(daemon, made, "g", b"y")
    daemon.release(made["id"])
    for method in ("GET", "PUT", "DELETE"):
        body = b"x" if method == "PUT" else None
        refused(daemon.request(method, files(made, "f"), body), 409, "SANDBOX_RELEASED")
    refused(daemon.request("GET", "/v1/sandboxes/aaaaaaaaaaaa/files/f"), 404, "SANDBOX_NOT_FOUND")


def test_a_release_ends_an_upload_and_a_download(daemon: Daemon, create: Any) -> None:
    made = create()
    put(daemon, made, "big", b"x" * (4 << 20))
    head = f"PUT {files(made, 'new')} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    with daemon.connect() as up, daemon.connect() as down:
        up.sendall(head.encode() + b"x" * 1000)
        down.sendall(f"GET {files(made, 'big')} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert down.recv(100)
        daemon.release(made["id"])
        answer = http.client.HTTPResponse(up)
        answer.begin()
        assert answer.status == 409
        assert b"SANDBOX_RELEASED" in answer.read()
        received = 100
        try:
            while piece := down.recv(65536):
                received += len(piece)
        except ConnectionResetError:
            pass
        assert received < 4 << 20
    assert not os.path.exists(daemon.state / "sandboxes" / made["id"] / "home")
    assert not os.path.exists(daemon.state / "sandboxes" / made["id"] / "staging")


def test_only_json_is_compressed_nowhere(daemon: Daemon, sandbox: Any) -> None:
    answer = daemon.request("PUT", files(sandbox, "z"), b"x", Content_Encoding="gzip")
    refused(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    refused(daemon.request("GET", files(sandbox, "z")), 404, "FILE_NOT_FOUND")


def test_another_caller_s_files_do_not_exist(daemon: Daemon, sandbox: Any, first: CallerOf) -> None:
    put(daemon, sandbox, "f", b"mine")
    for method, target in (
        ("GET", files(sandbox, "f")), ("DELETE", files(sandbox, "f")),
        ("POST", files(sandbox, "d?op=mkdir")), ("PUT", files(sandbox, "f")),
        ("GET", f"/v1/sandboxes/{sandbox['id']}/directories"),
        ("GET", f"/v1/sandboxes/{sandbox['id']}/archive"),
    ):  # fmt: skip
        refused(first.request(method, target), 404, "SANDBOX_NOT_FOUND")
    assert get(daemon, sandbox, "f") == b"mine"
