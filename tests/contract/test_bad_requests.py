# SPDX-License-Identifier: Apache-2.0
"""Malformed requests: each gets its code and a cause, and none leaves anything behind."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import executions, refused, start
from tests.harness import Daemon

KIB = 1 << 10
NUL_FIELDS: tuple[Any, ...] = (
    {"argv": ["echo", "a\0b"]}, {"argv": ["a\0b"]}, {"command": "a\0b"},
    {"argv": ["true"], "cwd": "a\0b"}, {"argv": ["true"], "env": {"A": "a\0b"}},
    {"argv": ["true"], "env": {"A\0": "b"}},
)  # fmt: skip
MALFORMED: tuple[Any, ...] = (
    {}, {"argv": []}, {"argv": [""]}, {"argv": "true"}, {"argv": [1]}, {"argv": [None]},
    {"argv": {}}, {"command": ""}, {"command": ["true"]}, {"argv": ["true"], "command": "true"},
    {"argv": ["true"], "env": []}, {"argv": ["true"], "env": {"": "x"}},
    {"argv": ["true"], "env": {"A=B": "x"}}, {"argv": ["true"], "env": {"A": 1}},
    {"argv": ["true"], "cwd": 5}, {"argv": ["true"], "cwd": ""}, {"argv": ["true"], "stdin": 5},
    {"argv": ["true"], "stdin_base64": "!"}, {"argv": ["true"], "stdin_base64": "YQ"},
    {"argv": ["true"], "stdin": "a", "stdin_base64": "YQ=="},
    {"argv": ["true"], "wait": "yes"}, {"argv": ["true"], "merge_output": 1},
    {"argv": ["true"], "kill_grace_seconds": -1}, {"argv": ["true"], "kill_grace_seconds": "x"},
    {"argv": ["true"], "nosuch": None}, {"argv": ["true"], "limits": []},
    {"argv": ["true"], "limits": {"nosuch": 1}}, {"argv": ["true"], "limits": {"disk_bytes": 1}},
    {"argv": ["\ud800"]}, {"argv": ["true"], "env": {"A": "\udfff"}},
)  # fmt: skip


@pytest.fixture
def nothing_started(daemon: Daemon, sandbox: Any) -> Any:
    """The sandbox, in which the test must not leave an execution, and which works afterwards."""
    yield sandbox
    assert daemon.ok("GET", executions(sandbox))["executions"] == []
    assert daemon.execute(sandbox["id"], ["echo", "on"])["stdout"] == "on\n"


def test_nul_bytes_are_refused_by_field(daemon: Daemon, nothing_started: Any) -> None:
    for body in NUL_FIELDS:
        answer = daemon.request("POST", executions(nothing_started), body)
        error = refused(answer, 400, "INVALID_REQUEST")
        assert all("NUL" in field["reason"] for field in error["details"]["fields"])
        assert error["details"]["fields"]


def test_malformed_executions_are_refused_with_reasons(
    daemon: Daemon, nothing_started: Any
) -> None:
    for body in MALFORMED:
        answer = daemon.request("POST", executions(nothing_started), body)
        error = refused(answer, 400, "INVALID_REQUEST")
        assert error["details"]["fields"], body
        assert all(set(field) >= {"path", "reason"} for field in error["details"]["fields"])


@pytest.mark.parametrize(
    "body",
    [{"argv": ["echo", "x" * (130 * KIB)]}, {"command": f"true {'x' * (130 * KIB)}"},
     {"argv": ["true"], "env": {"A": "x" * (130 * KIB)}},
     {"argv": ["true"], "env": {f"A{n}": "x" * (10 * KIB) for n in range(216)}},
     {"argv": ["true", *["x" * (100 * KIB)] * 30]}],
    ids=["argument", "command", "variable", "216 variables", "arguments together"],
)  # fmt: skip
def test_what_the_kernel_would_not_take_is_refused_with_the_bound(
    daemon: Daemon, nothing_started: Any, body: Any
) -> None:
    answer = daemon.request("POST", executions(nothing_started), body)
    error = refused(answer, 400, "INVALID_REQUEST")
    assert any(char.isdigit() for char in error["details"]["fields"][0]["reason"])


def test_what_the_kernel_takes_is_taken(daemon: Daemon, sandbox: Any) -> None:
    big = "x" * (128 * KIB - 1)
    ran = daemon.execute(sandbox["id"], ["printf", "%s", big])
    assert ran["stdout"] == big
    env = {f"A{n}": "x" * (10 * KIB) for n in range(150)}
    ran = daemon.execute(sandbox["id"], "env | wc -c", env=env)
    assert int(ran["stdout"]) > 150 * 10 * KIB


def test_environments_that_only_together_are_too_large(daemon: Daemon, create: Create) -> None:
    """Sandbox and execution each pass alone; together they are refused, not a broken set-up."""
    env = {f"A{n}": "x" * (10 * KIB) for n in range(150)}
    made = create(env=env)
    body = {"argv": ["true"], "env": {f"B{n}": "x" * (10 * KIB) for n in range(150)}}
    answer = daemon.request("POST", executions(made), body)
    assert answer.status in {400, 422}, answer.body
    assert answer.code in {"INVALID_REQUEST", "EXECUTION_NOT_STARTED"}
    assert daemon.ok("GET", executions(made))["executions"] == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"5", b"\xff\xfe", b'{"name": NaN}', b"{} {}",
     b'{"env": {"A": "\xff"}}', b"[" * 100_000, b'{"a":' * 100_000, b'{"limits": {"pids": 1e999}}',
     b'{"limits": {"memory_bytes": ' + b"9" * 5000 + b"}}"],
)  # fmt: skip
def test_a_body_that_is_not_the_json_asked_for(daemon: Daemon, body: bytes) -> None:
    answer = daemon.request("POST", "/v1/sandboxes", body)
    if answer.status == 201:
        daemon.release(answer.json["id"])
        # No body at all is the same as no fields.
        assert body == b""
    else:
        refused(answer, 400, "INVALID_REQUEST")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "image/png"])
def test_another_content_type_is_refused(daemon: Daemon, kind: str) -> None:
    answer = daemon.request("POST", "/v1/sandboxes", b"{}", Content_Type=kind)
    refused(answer, 415, "UNSUPPORTED_MEDIA_TYPE")


def test_a_charset_is_no_other_content_type(daemon: Daemon) -> None:
    kind = "application/json; charset=utf-8"
    answer = daemon.request("POST", "/v1/sandboxes", b"{}", Content_Type=kind)
    assert answer.status == 201
    daemon.release(answer.json["id"])


def test_a_too_large_body_is_refused(daemon: Daemon, sandbox: Any) -> None:
    body = json.dumps({"argv": ["true"], "stdin": "x" * (200 << 20)}).encode()
    try:
        answer = daemon.request("POST", executions(sandbox), body)
    except (BrokenPipeError, ConnectionResetError):
        # Refused by the header, before all of it was sent.
        pass
    else:
        refused(answer, 413, "REQUEST_TOO_LARGE")
    assert daemon.ok("GET", executions(sandbox))["executions"] == []


def test_a_large_but_allowed_input_is_taken(daemon: Daemon, sandbox: Any) -> None:
    data = base64.b64encode(bytes(5 << 20)).decode()
    ran = daemon.execute(sandbox["id"], ["wc", "-c"], stdin_base64=data)
    assert ran["stdout"].strip() == str(5 << 20)


@pytest.mark.parametrize("body", [{"signal": 0}, {"signal": 65}, {"signal": "NOPE"},
                                  {"group": True}, {"group": 1, "signal": 2},
                                  {"signal": -9}, {"signal": True}, {"signal": [9]},
                                  {"grace_seconds": -1}, {"grace_seconds": "x"},
                                  {"nosuch": 1}])  # fmt: skip
def test_a_malformed_kill_is_refused_and_kills_nothing(
    daemon: Daemon, sandbox: Any, body: Any
) -> None:
    running = start(daemon, sandbox, ["sleep", "300"])
    target = f"{executions(sandbox)}/{running['id']}"
    refused(daemon.request("POST", f"{target}/kill", body), 400, "INVALID_REQUEST")
    assert daemon.ok("GET", target)["status"] == "RUNNING"


@pytest.mark.parametrize(
    "body",
    [{"metadata": {"": "x"}}, {"metadata": {"a": 1}}, {"metadata": {"a": "\0"}}, {"metadata": []},
     {"env": {"A": "a\0"}}, {"timeout_seconds": 0}, {"timeout_seconds": -5},
     {"idle_timeout_seconds": "never"}, {"isolation": "nosuch"}, {"network": "bridge"}, {"id": "x"},
     {"uid": 0}, {"state": "ready"}, {"name": 5}],
)  # fmt: skip
def test_a_malformed_sandbox_is_refused(daemon: Daemon, body: Any) -> None:
    refused(daemon.request("POST", "/v1/sandboxes", body), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("level", ["standard", "strict"])
def test_a_level_that_cannot_be_had_is_an_error(daemon: Daemon, level: str) -> None:
    known = daemon.ok("GET", "/v1/host")["isolation"]["levels"][level]
    answer = daemon.request("POST", "/v1/sandboxes", {"isolation": level})
    if known["available"]:
        assert answer.json["isolation"] == level
        daemon.release(answer.json["id"])
    else:
        error = refused(answer, 400, "ISOLATION_UNSUPPORTED")
        assert error["details"]["lacks"] == [lack["what"] for lack in known["lacks"]]
