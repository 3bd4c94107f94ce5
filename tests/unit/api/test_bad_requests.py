# SPDX-License-Identifier: Apache-2.0
"""Every malformed request gets its code and a cause, in the error's form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandboxd.wire import payload
from tests.unit.api.harness import ADMIN, served

ID = "abcdefghijkl"
RUN = {"argv": ["true"]}
TOO_LONG = "x" * payload.MAX_STRING_BYTES

# Body of POST /v1/run -> the field that is named, and a part of the reason.
RUNS: list[tuple[Any, str, str]] = [
    ([], "", "object"),
    ({}, "", "either argv or command"),
    ({"argv": ["a"], "command": "b"}, "", "either argv or command"),
    ({"argv": []}, "argv", "at least one"),
    ({"argv": [""]}, "argv", "name a program"),
    ({"argv": "true"}, "argv", "list"),
    ({"argv": ["a", 1]}, "argv", "argument 1 must be a string"),
    ({"argv": ["a\0b"]}, "argv", "NUL"),
    ({"argv": ["a", TOO_LONG]}, "argv", "131072 bytes (128 KiB)"),
    ({"argv": ["a"] * 70_000}, "argv", "65536"),
    ({"argv": ["a", *["x" * 100_000] * 25]}, "", "can be passed"),
    ({"command": ""}, "command", "empty"),
    ({"command": "a\0b"}, "command", "NUL"),
    ({"command": TOO_LONG}, "command", "128 KiB"),
    ({**RUN, "env": {"": "a"}}, "env", "empty"),
    ({**RUN, "env": {"A=B": "a"}}, "env", "'='"),
    ({**RUN, "env": {"A": "a\0"}}, "env", "NUL"),
    ({**RUN, "env": {"A\0": "a"}}, "env", "NUL"),
    ({**RUN, "env": {"A": 1}}, "env", "string"),
    ({**RUN, "env": {"A": None}}, "env", "string"),
    ({**RUN, "env": {"A": "x" * (payload.MAX_STRING_BYTES - 2)}}, "env", "128 KiB"),
    ({**RUN, "env": {f"A{i}": "x" * 10_240 for i in range(216)}}, "", "can be passed"),
    ({**RUN, "env": {f"A{i}": "" for i in range(5000)}}, "env", "4096"),
    ({**RUN, "env": ["A=B"]}, "env", "object"),
    ({**RUN, "cwd": "a\0"}, "cwd", "NUL"),
    ({**RUN, "cwd": ""}, "cwd", "empty"),
    ({**RUN, "cwd": "a" * 5000}, "cwd", "4095"),
    ({**RUN, "stdin": "a", "stdin_base64": "YQ=="}, "", "both"),
    ({**RUN, "stdin_base64": "YQ"}, "stdin_base64", "base64"),
    ({**RUN, "stdin_base64": "Y Q="}, "stdin_base64", "base64"),
    ({**RUN, "stdin_base64": "ä"}, "stdin_base64", "base64"),
    ({**RUN, "stdin": 1}, "stdin", "string"),
    ({**RUN, "name": "Box"}, "name", "a-z"),
    ({**RUN, "name": ID}, "name", "like an id"),
    ({**RUN, "name": "a" * 64}, "name", "62"),
    ({**RUN, "metadata": {"a b": "c"}}, "metadata", "key"),
    ({**RUN, "metadata": {"a": "x" * 5000}}, "metadata", "4096"),
    ({**RUN, "metadata": {f"a{i}": "" for i in range(65)}}, "metadata", "64"),
    ({**RUN, "require": ["memory"]}, "require", "memory_bytes"),
    ({**RUN, "require": "memory_bytes"}, "require", "list"),
    ({**RUN, "require_by": "supervisor"}, "require_by", "kernel"),
    ({**RUN, "rootfs": "/"}, "rootfs", "must be a name"),
    ({**RUN, "rootfs": ".."}, "rootfs", "must be a name"),
    ({**RUN, "binds": [{"source": "/a"}]}, "binds.0.target", "required"),
    ({**RUN, "binds": [{"source": "/a", "target": "a\0"}]}, "binds.0.target", "NUL"),
    ({**RUN, "binds": [{}] * 17}, "binds", "at most 16"),
    ({**RUN, "isolation": "nosuch"}, "isolation", "strict"),
    ({**RUN, "network": "internet"}, "network", "loopback"),
    ({**RUN, "merge_output": "yes"}, "merge_output", "boolean"),
    ({**RUN, "wait": -1}, "wait", "above 0"),
    ({**RUN, "files": [{"path": "f"}]}, "files.0", "either text or base64"),
    ({**RUN, "files": [{"path": "f", "text": "", "base64": ""}]}, "files.0", "either text or"),
    ({**RUN, "files": [{"path": "../f", "text": ""}]}, "files.0.path", "`..`"),
    ({**RUN, "files": [{"path": "a\0", "text": ""}]}, "files.0.path", "NUL"),
    ({**RUN, "files": [{"path": "f", "base64": "!"}]}, "files.0.base64", "base64"),
    ({**RUN, "files": [{"path": "f", "text": "", "mode": "4755"}]}, "files.0.mode", "octal"),
    ({**RUN, "files": [{"path": "f", "text": ""}] * 257}, "files", "at most 256"),
    ({**RUN, "read_files": ["f"] * 257}, "read_files", "at most 256"),
    ({**RUN, "read_files": [1]}, "read_files.0", "a string"),
    ({**RUN, "wait": 3601}, "wait", "at most 3600"),
    ({**RUN, "wait": []}, "wait", "number of seconds"),
    ({**RUN, "kill_grace_seconds": -1}, "kill_grace_seconds", "above 0"),
    ({**RUN, "kill_grace_seconds": 301}, "kill_grace_seconds", "300"),
    ({**RUN, "timeout_seconds": 1, "limits": {"timeout_seconds": 1}}, "", "twice"),
    ({**RUN, "stdin_open": 1}, "stdin_open", ""),
    ({**RUN, "stdin": "a", "stdin_open": True}, "", "both stdin and stdin_open"),
    ({**RUN, "stdin_base64": "", "tty": {"rows": 1, "cols": 1}}, "", "both stdin_base64 and stdin"),
    ({**RUN, "tty": {"rows": 24}}, "tty.cols", "required"),
    ({**RUN, "tty": {"rows": 0, "cols": 1}}, "tty.rows", "at least 1"),
    ({**RUN, "tty": {"rows": 1, "cols": 1, "term": ""}}, "tty.term", "unknown"),
    ({**RUN, "limits": 1}, "limits", "object"),
    ({**RUN, "limits": {"memory": 1}}, "limits.memory", "unknown"),
]  # fmt: skip
# What other issues bring is unknown until then.
RUNS += [({**RUN, "idempotency_key": "a"}, "idempotency_key", "unknown")]
BAD_NUMBERS = [0, -1, True, "0", "-1", "", "1X", "inf", "nan", [], {}, 1e400, float("nan")]
LIMITS: list[tuple[str, list[Any]]] = [
    ("memory_bytes", [1.5, 1 << 63, "1.5B", "9999999T"]),
    ("cpus", ["0%", 1e9, 0.001, "1e3"]),
    ("pids", ["5", 1.5, 1 << 23]),
    ("io_read_bytes_per_second", ["1 MB/s"]),
    ("io_write_bytes_per_second", [2.0]),
    ("disk_bytes", ["ten"]),
    ("timeout_seconds", ["1 fortnight", 1e12, "1" * 63 + "!"]),
    ("cpu_seconds", ["-5s"]),
    ("max_output_bytes", ["NoneType"]),
    ("open_files", [1 << 21]),
    ("file_size_bytes", ["0K"]),
]
RUNS += [
    ({**RUN, "limits": {name: value}}, f"limits.{name}", "")
    for name, more in LIMITS
    for value in [*BAD_NUMBERS, *more]
]


async def test_bad_bodies_name_their_field_and_reason() -> None:
    async with served() as server:
        for body, path, reason in RUNS:
            answered = await server.ask("POST", "/v1/run", body)
            shown = json.dumps(body)[:200]
            assert answered.status == 400, shown
            assert answered.error["code"] == "INVALID_REQUEST", shown
            fields = answered.error["details"]["fields"]
            assert [field["path"] for field in fields] == [path], shown
            assert fields[0]["reason"], shown
            assert reason in fields[0]["reason"], shown
            assert not fields[0]["reason"][0].isupper() or fields[0]["reason"][:3].isupper()
        assert server.engine.list_sandboxes(ADMIN) == []
        assert "create_sandbox" not in server.world.calls


@pytest.mark.parametrize(
    "body",
    [b"{", b"\xff", b'"x"', b"null", b"{}{}", b"[" * 100_000, b'{"argv":["\\ud800"]}',
     b'{"argv":["a"],"limits":{"cpus":' + b"9" * 5000 + b"}}"],
)  # fmt: skip
async def test_what_is_not_json_or_no_object_is_400(body: bytes) -> None:
    async with served() as server:
        answered = await server.ask("POST", "/v1/run", body)
        assert (answered.status, answered.error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "ROUTE_NOT_FOUND"),
        ("GET", "/v1/sandboxes/", 404, "ROUTE_NOT_FOUND"),
        ("GET", f"/v1/sandboxes/{ID}/", 404, "ROUTE_NOT_FOUND"),
        ("GET", "/v1//sandboxes", 404, "ROUTE_NOT_FOUND"),
        ("GET", f"/v1/sandboxes/{ID}", 404, "SANDBOX_NOT_FOUND"),
        ("GET", "/v1/sandboxes/..%2f..%2fetc", 404, "SANDBOX_NOT_FOUND"),
        ("GET", "/v1/sandboxes/%00", 404, "SANDBOX_NOT_FOUND"),
        ("GET", "/v1/sandboxes/UPPER", 404, "SANDBOX_NOT_FOUND"),
        ("GET", f"/v1/sandboxes/{ID}/executions/{ID}", 404, "SANDBOX_NOT_FOUND"),
        ("GET", f"/v1/sandboxes/{ID}/executions/short", 404, "EXECUTION_NOT_FOUND"),
        ("PUT", "/v1/sandboxes", 405, "METHOD_NOT_ALLOWED"),
        ("HEAD", "/v1/host", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/openapi.json", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/sandboxes?limit=0", 400, "INVALID_REQUEST"),
        ("GET", "/v1/sandboxes?limit=1001", 400, "INVALID_REQUEST"),
        ("GET", "/v1/sandboxes?limit=1&limit=2", 400, "INVALID_REQUEST"),
        ("GET", "/v1/sandboxes?cursor=~", 400, "INVALID_REQUEST"),
        ("GET", "/v1/sandboxes?state=gone", 400, "INVALID_REQUEST"),
        ("GET", "/v1/sandboxes?color=red", 400, "INVALID_REQUEST"),
        ("GET", f"/v1/sandboxes/{ID}/executions/{ID}?wait=3601", 400, "INVALID_REQUEST"),
        ("GET", f"/v1/sandboxes/{ID}/executions/{ID}?wait=-1", 400, "INVALID_REQUEST"),
        ("GET", f"/v1/sandboxes/{ID}/executions/{ID}?wait=nan", 400, "INVALID_REQUEST"),
        ("GET", f"/v1/sandboxes/{ID}/executions/{ID}/output?offset=-1", 400, "INVALID_REQUEST"),
        ("GET", f"/v1/sandboxes/{ID}/executions/{ID}/output?offset=9" + "9" * 30, 400,
         "INVALID_REQUEST"),
        ("GET", f"/v1/sandboxes/{ID}/executions/{ID}/output?stream=x", 400, "INVALID_REQUEST"),
    ],
)  # fmt: skip
async def test_bad_paths_and_queries(method: str, path: str, status: int, code: str) -> None:
    async with served() as server:
        answered = await server.ask(method, path)
        assert answered.status == status
        assert len(answered.headers["x-request-id"]) == 12
        if method != "HEAD":
            assert answered.error["code"] == code
        if status == 405:
            assert answered.headers["allow"]


@pytest.mark.parametrize(
    "body", [{"signal": 0}, {"signal": 65}, {"signal": "KILLALL"}, {"signal": True},
             {"signal": 9, "grace_seconds": 1}, {"grace_seconds": "long"}]
)  # fmt: skip
async def test_bad_kills(body: dict[str, Any]) -> None:
    async with served() as server:
        answered = await server.ask("POST", f"/v1/sandboxes/{ID}/executions/{ID}/kill", body)
        assert (answered.status, answered.error["code"]) == (400, "INVALID_REQUEST")


async def test_a_body_that_is_not_json_by_type_or_encoding_is_415() -> None:
    async with served() as server:
        for headers in (
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/x-www-form-urlencoded"},
            {"Content-Encoding": "gzip"},
        ):
            answered = await server.ask("POST", "/v1/run", RUN, headers=headers)
            assert (answered.status, answered.error["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
        headers = {"Content-Type": "application/json; charset=utf-8"}
        assert (await server.ask("POST", "/v1/run", RUN, headers=headers)).status == 200


async def test_a_body_where_none_belongs_is_refused() -> None:
    async with served() as server:
        answered = await server.ask("DELETE", f"/v1/sandboxes/{ID}", {"force": True})
        assert answered.error["details"]["fields"] == [{"path": "force", "reason": "unknown field"}]


async def test_an_unexpected_exception_is_500_with_no_word_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as server:
        server.world.breaks, server.world.fault = "create_sandbox", RuntimeError("secret")
        answered = await server.ask("POST", "/v1/run", RUN)
        assert (answered.status, answered.error["code"]) == (500, "INTERNAL")
        assert b"secret" not in answered.body
        request_id = answered.error["request_id"]
    assert any(request_id in record.getMessage() and record.exc_info for record in caplog.records)
