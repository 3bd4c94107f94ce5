# SPDX-License-Identifier: Apache-2.0
"""Absolute paths of the file API: those that a program in the sandbox has, and no others."""

from __future__ import annotations

import io
import tarfile
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import refused, require_level
from tests.contract.test_files import files, get, listed, put, run
from tests.harness import Daemon


@pytest.fixture(params=["basic", "standard"])
def offered_sandbox(request: pytest.FixtureRequest, daemon: Daemon, create: Create) -> Any:
    """A sandbox of each level that has its own /tmp here."""
    return create(isolation=require_level(daemon, request.param))


def home_of(daemon: Daemon, sandbox: Any) -> str:
    """Its home as a program has it."""
    return run(daemon, sandbox, "pwd").strip()


def test_what_is_written_below_tmp_is_there_for_a_command(
    daemon: Daemon, offered_sandbox: Any
) -> None:
    assert put(daemon, offered_sandbox, "/tmp/in", b"one") == 201
    assert put(daemon, offered_sandbox, "%2Ftmp%2Fin2", b"two") == 201
    assert put(daemon, offered_sandbox, "/var/tmp/in3", b"three") == 201
    assert run(daemon, offered_sandbox, "cat /tmp/in /tmp/in2 /tmp/in3") == "onetwothree"
    run(daemon, offered_sandbox, "mkdir /tmp/d; echo -n out > /tmp/d/out; ls")
    assert get(daemon, offered_sandbox, "/tmp/d/out") == b"out"
    # Nothing of all this is in the home.
    assert listed(daemon, offered_sandbox) == {}
    assert set(listed(daemon, offered_sandbox, "/tmp", "?depth=2")) >= {
        "/tmp/in", "/tmp/in2", "/tmp/in3", "/tmp/d", "/tmp/d/out",
    }  # fmt: skip


def test_the_home_by_its_path_inside(daemon: Daemon, offered_sandbox: Any) -> None:
    put(daemon, offered_sandbox, "a/b", b"x", "?parents=true")
    for home in {home_of(daemon, offered_sandbox), "/home/sandbox"}:
        assert get(daemon, offered_sandbox, f"{home}/a/b") == b"x"
        assert set(listed(daemon, offered_sandbox, f"{home}/a")) == {f"{home}/a/b"}
        assert set(listed(daemon, offered_sandbox, quote(home, safe=""))) == {f"{home}/a"}
        assert daemon.request("HEAD", files(offered_sandbox, f"{home}/a")).status == 200
        put(daemon, offered_sandbox, f"{home}/c", b"y")
        assert get(daemon, offered_sandbox, "c") == b"y"
        refused(daemon.request("DELETE", files(offered_sandbox, home)), 400, "INVALID_REQUEST")
        assert daemon.request("DELETE", files(offered_sandbox, f"{home}/c")).status == 204
    refused(daemon.request("DELETE", files(offered_sandbox, "/tmp")), 400, "INVALID_REQUEST")


def test_a_path_from_a_traceback(daemon: Daemon, offered_sandbox: Any) -> None:
    put(daemon, offered_sandbox, "t.py", b"import sys; sys.stdout.write(__file__); 1/0")
    ended = daemon.execute(offered_sandbox["id"], 'python3 "$PWD/t.py"')
    assert f'File "{ended["stdout"]}"' in ended["stderr"]
    assert get(daemon, offered_sandbox, ended["stdout"]).startswith(b"import sys")


def test_rename_and_directories_across(daemon: Daemon, offered_sandbox: Any) -> None:
    put(daemon, offered_sandbox, "f", b"moved")
    answer = daemon.request("POST", files(offered_sandbox, "f") + "?op=rename&to=/tmp/g")
    assert answer.status == 204, answer.body
    assert run(daemon, offered_sandbox, "cat /tmp/g; ls") == "moved"
    answer = daemon.request("POST", files(offered_sandbox, "/tmp/g") + "?op=rename&to=back")
    assert answer.status == 204, answer.body
    assert get(daemon, offered_sandbox, "back") == b"moved"
    target = files(offered_sandbox, "/tmp/x/y") + "?op=mkdir&parents=true"
    assert daemon.request("POST", target).status == 201
    assert run(daemon, offered_sandbox, "stat -c %F /tmp/x/y") == "directory\n"
    assert daemon.request("DELETE", files(offered_sandbox, "/tmp/x")).status == 204
    assert run(daemon, offered_sandbox, "ls /tmp") == ""


def test_archives(daemon: Daemon, offered_sandbox: Any) -> None:
    put(daemon, offered_sandbox, "/tmp/t/f", b"content", "?parents=true")
    archive = f"/v1/sandboxes/{offered_sandbox['id']}/archive/"
    packed = daemon.request("GET", archive + "/tmp/t")
    assert packed.status == 200
    assert tarfile.open(fileobj=io.BytesIO(packed.body)).getnames() == ["f"]
    assert daemon.request("PUT", archive + "/tmp", packed.body).status == 204
    assert run(daemon, offered_sandbox, "cat /tmp/f") == "content"


@pytest.mark.parametrize(
    "path",
    ["/", "/etc/passwd", "/tmpx", "/tm", "/home", "/home/sandbox2/x", "/var/lib", "/proc/self",
     "/usr/bin/env", "%2F", "/home/sandbox/../x", "/tmp/../etc"],
)  # fmt: skip
def test_anything_else_is_refused_by_name(daemon: Daemon, offered_sandbox: Any, path: str) -> None:
    requests = [("GET", path), ("PUT", path), ("DELETE", path), ("PUT", f"{path}/new?parents=true")]
    for method, target in requests:
        body = b"x" if method == "PUT" else None
        answer = daemon.request(method, files(offered_sandbox, target), body)
        if ".." in path:
            refused(answer, 400, "INVALID_REQUEST")
        else:
            error = refused(answer, 403, "ACCESS_DENIED")
            assert "/home/sandbox" in error["hint"]
            assert "/tmp" in error["hint"]
    put(daemon, offered_sandbox, "here", b"x")
    answer = daemon.request("POST", files(offered_sandbox, "here") + f"?op=rename&to={path}")
    assert answer.status in {400, 403}
    for kind in ("directories", "archive"):
        target = f"/v1/sandboxes/{offered_sandbox['id']}/{kind}/{path}"
        assert daemon.request("GET", target).status in {400, 403}


def test_a_host_path_is_no_name_of_a_home_in_a_root_of_its_own(
    daemon: Daemon, create: Create
) -> None:
    sandbox = create(isolation=require_level(daemon, "standard"))
    path = f"{daemon.state}/sandboxes/{sandbox['id']}/home/f"
    refused(daemon.request("PUT", files(sandbox, path), b"x"), 403, "ACCESS_DENIED")


def test_links_do_not_lead_from_one_to_the_other(daemon: Daemon, offered_sandbox: Any) -> None:
    run(daemon, offered_sandbox, "echo s > /tmp/s; ln -s /tmp/s l; ln -s /etc/passwd /tmp/p")
    refused(daemon.request("GET", files(offered_sandbox, "l")), 403, "ACCESS_DENIED")
    refused(daemon.request("GET", files(offered_sandbox, "/tmp/p")), 403, "ACCESS_DENIED")


def test_a_missing_directory_on_the_way_names_parents(daemon: Daemon, offered_sandbox: Any) -> None:
    for answer in (
        daemon.request("PUT", files(offered_sandbox, "no/such/f"), b"x"),
        daemon.request("PUT", files(offered_sandbox, "/tmp/no/f"), b"x"),
        daemon.request("POST", files(offered_sandbox, "no/such") + "?op=mkdir"),
    ):
        assert "?parents=true" in refused(answer, 404, "FILE_NOT_FOUND")["hint"]
