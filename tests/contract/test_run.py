# SPDX-License-Identifier: Apache-2.0
"""POST /v1/run: a sandbox for one execution, gone with it, read afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.probes import eventually, output, path_of, printed, refused
from tests.harness import Daemon

MIB = 1 << 20


def run(daemon: Daemon, **body: Any) -> Any:
    return daemon.ok("POST", "/v1/run", body)


def state(daemon: Daemon, execution: Any) -> str:
    found: str = daemon.ok("GET", f"/v1/sandboxes/{execution['sandbox_id']}")["state"]
    return found


def live(daemon: Daemon) -> list[str]:
    states = ("ready", "suspended", "releasing")
    pages = [daemon.ok("GET", f"/v1/sandboxes?state={one}")["sandboxes"] for one in states]
    return [entry["id"] for page in pages for entry in page]


def test_the_sandbox_is_released_and_the_record_stays(daemon: Daemon) -> None:
    ran = run(daemon, command="echo out; echo err >&2; exit 3")
    assert (ran["status"], ran["exit_code"]) == ("EXITED", 3)
    assert (ran["stdout"], ran["stderr"]) == ("out\n", "err\n")
    assert state(daemon, ran) == "released"
    assert daemon.ok("GET", path_of(ran)) == ran
    assert output(daemon, ran, "stderr") == b"err\n"


def test_without_waiting_it_lives_until_its_end(daemon: Daemon) -> None:
    answer = daemon.request("POST", "/v1/run", {"command": "echo up; sleep 300", "wait": False})
    assert answer.status == 201
    running = answer.json
    printed(daemon, running, b"up")
    assert state(daemon, running) == "ready"
    daemon.ok("POST", f"{path_of(running)}/kill")
    assert daemon.wait(running)["status"] == "KILLED"
    eventually(lambda: state(daemon, running) == "released")
    assert daemon.ok("GET", path_of(running))["stdout"] == "up\n"


def test_limits_go_where_they_belong(daemon: Daemon) -> None:
    ran = run(
        daemon, command="ulimit -n", limits={"memory_bytes": 64 * MIB, "open_files": 77, "pids": 9}
    )
    assert ran["stdout"] == "77\n"
    made = daemon.ok("GET", f"/v1/sandboxes/{ran['sandbox_id']}")
    assert made["limits"]["memory_bytes"] == ran["limits"]["memory_bytes"] == 64 * MIB
    assert made["limits"]["pids"] == 9
    assert (made["limits"]["open_files"], ran["limits"]["open_files"]) == (1024, 77)


def test_a_timeout_is_the_execution_s(daemon: Daemon) -> None:
    ran = run(daemon, command="echo x; sleep 300", timeout_seconds=0.5, env={"A": "b"})
    assert (ran["status"], ran["limit_owner"]) == ("TIMED_OUT", "execution")
    assert ran["stdout"] == "x\n"
    assert daemon.ok("GET", f"/v1/sandboxes/{ran['sandbox_id']}")["limits"]["timeout_seconds"] > 1


def test_name_and_memory_are_free_for_the_next_run_at_once(daemon: Daemon) -> None:
    capacity = daemon.ok("GET", "/v1/host")["capacity"]
    most = capacity["free_bytes"] * 2 // 3
    for _ in range(2):
        ran = run(
            daemon,
            argv=["true"],
            name="one-run",
            metadata={"a": "b"},
            limits={"memory_bytes": most},
        )
        made = daemon.ok("GET", f"/v1/sandboxes/{ran['sandbox_id']}")
        assert (made["name"], made["metadata"]) == ("one-run", {"a": "b"})


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [({"argv": ["no-such"]}, 422, "EXECUTION_NOT_STARTED"),
     ({"argv": ["true"], "cwd": "/no/such"}, 422, "EXECUTION_NOT_STARTED"),
     ({"argv": ["true"], "limits": {"memory_bytes": 1}}, 400, "LIMIT_TOO_SMALL"),
     ({"argv": ["true"], "network": "nosuch"}, 400, "INVALID_REQUEST"),
     ({"argv": ["true"], "isolation": "strict"}, 400, "ISOLATION_UNSUPPORTED"),
     ({}, 400, "INVALID_REQUEST")],
)  # fmt: skip
def test_what_is_refused_leaves_nothing(daemon: Daemon, body: Any, status: int, code: str) -> None:
    committed, before = daemon.ok("GET", "/v1/host")["capacity"]["committed_bytes"], live(daemon)
    if code == "ISOLATION_UNSUPPORTED":
        levels = daemon.ok("GET", "/v1/host")["isolation"]["levels"]
        if levels["strict"]["available"]:
            return
    refused(daemon.request("POST", "/v1/run", body), status, code)
    after = daemon.ok("GET", "/v1/host")["capacity"]["committed_bytes"]
    assert after == committed
    assert live(daemon) == before


def test_kept_output_beyond_the_answer(daemon: Daemon) -> None:
    ran = run(daemon, argv=["head", "-c", str(MIB + 5), "/dev/zero"])
    assert ran["stdout_inline_truncated"] is True
    assert len(output(daemon, ran)) == MIB + 5


def test_files_go_in_and_come_out_with_one_request(daemon: Daemon) -> None:
    ran = run(
        daemon,
        command="./bin/job in.bin > out.txt; printf '\\377\\0' > raw; chmod 600 raw; mkdir d;"
        "ln -s /etc/passwd out; mkfifo p",
        files=[
            {"path": "bin/job", "text": "#!/bin/sh\nwc -c < $1; cat /tmp/x", "mode": "0755"},
            {"path": "in.bin", "base64": "AAEC/w=="},
            {"path": "/tmp/x", "text": "from tmp\n"},
        ],
        read_files=[
            "out.txt",
            "raw",
            "/home/sandbox/out.txt",
            "none",
            "d",
            "out",
            "p",
            "/etc/passwd",
        ],
    )
    assert (ran["status"], ran["exit_code"], ran["stderr"]) == ("EXITED", 0, "")
    first, raw, same, *bad = ran["files"]
    assert first == {
        "path": "out.txt", "size_bytes": 11, "mode": "0644", "text": "4\nfrom tmp\n",
        "base64": None, "error": None,
    }  # fmt: skip
    assert same == {**first, "path": "/home/sandbox/out.txt"}
    assert (raw["text"], raw["base64"], raw["mode"], raw["size_bytes"]) == (None, "/wA=", "0600", 2)
    assert [file["error"]["code"] for file in bad] == [
        "FILE_NOT_FOUND", "FILE_CONFLICT", "ACCESS_DENIED", "FILE_CONFLICT", "ACCESS_DENIED",
    ]  # fmt: skip
    assert state(daemon, ran) == "released"
    # The record keeps none of them.
    assert "files" not in daemon.ok("GET", path_of(ran))


def test_what_is_read_is_bounded_and_read_whatever_the_end_is(daemon: Daemon) -> None:
    ran = run(
        daemon,
        command="echo kept > small; head -c 5000000 /dev/zero > large; kill -9 $$",
        read_files=["large", "small"],
    )
    assert ran["status"] == "SIGNALED"
    large, small = ran["files"]
    assert large["error"]["code"] == "REQUEST_TOO_LARGE"
    assert (large["text"], small["text"]) == (None, "kept\n")


def test_a_file_that_cannot_be_written_leaves_no_sandbox(daemon: Daemon) -> None:
    before = live(daemon)
    for path, status, code in (
        ("/etc/passwd", 403, "ACCESS_DENIED"), ("a/../../b", 400, "INVALID_REQUEST"),
        ("", 400, "INVALID_REQUEST"), ("/tmp", 400, "INVALID_REQUEST"),
    ):  # fmt: skip
        body = {"command": "true", "files": [{"path": path, "text": ""}]}
        refused(daemon.request("POST", "/v1/run", body), status, code)
    over = {"command": "true", "files": [{"path": "f", "text": "x"}, {"path": "f/g", "text": "x"}]}
    refused(daemon.request("POST", "/v1/run", over), 409, "FILE_CONFLICT")
    limited = {
        "command": "true", "limits": {"disk_bytes": "1M"},
        "files": [{"path": "f", "text": "x" * (3 << 20)}],
    }  # fmt: skip
    answer = daemon.request("POST", "/v1/run", limited)
    assert answer.status in (200, 507), answer.body
    for wait in (False, 1):
        early: dict[str, Any] = {"command": "true", "read_files": ["f"], "wait": wait}
        refused(daemon.request("POST", "/v1/run", early), 400, "INVALID_REQUEST")
    eventually(lambda: live(daemon) == before)


def test_a_retry_gets_the_files_of_the_first(daemon: Daemon) -> None:
    body = {"command": "date +%N > f", "read_files": ["f"]}
    key = {"Idempotency-Key": "files-once"}
    one, two = (daemon.request("POST", "/v1/run", body, **key) for _ in range(2))
    assert one.json["files"] == two.json["files"]
    assert two.headers["Idempotency-Replayed"] == "true"
