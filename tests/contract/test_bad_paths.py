# SPDX-License-Identifier: Apache-2.0
"""Paths, methods and bytes that are no request of this API."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pytest

from tests.contract.probes import executions, refused
from tests.harness import Daemon

BAD_IDS = ("aaaaaaaaaaaa", "nosuch", "A", "..", ".", "%2f", "..%2f..%2fetc", "%00", "a%00b", "%ff",
           "a" * 300, "AAAAAAAAAAAA", "aaaaaaaaaaa1", "%20", "*", "a;b", "%2e%2e",
           "%c3%a4")  # fmt: skip


def raw(daemon: Daemon, data: bytes) -> bytes:
    """All that the server answers to these bytes."""
    answer = b""
    with daemon.connect() as connection:
        # What a server leaves unread when it closes is an error to the sender, after the answer.
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(65536):
                answer += chunk
    return answer


@pytest.mark.parametrize("name", BAD_IDS)
def test_a_bad_id_is_not_found(daemon: Daemon, name: str) -> None:
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("POST", "/suspend"), ("GET", "/executions"),
        ("GET", "/executions/aaaaaaaaaaaa"),
    ):  # fmt: skip
        answer = daemon.request(method, f"/v1/sandboxes/{name}{path}")
        assert answer.status in {400, 404}, (method, path, answer.body)
        assert answer.code in {"SANDBOX_NOT_FOUND", "ROUTE_NOT_FOUND", "INVALID_REQUEST"}
    if name == "aaaaaaaaaaaa":
        refused(daemon.request("GET", f"/v1/sandboxes/{name}"), 404, "SANDBOX_NOT_FOUND")


def test_a_bad_execution_id_is_not_found(daemon: Daemon, sandbox: Any) -> None:
    for name in BAD_IDS:
        answer = daemon.request("GET", f"{executions(sandbox)}/{name}/output")
        assert answer.status in {400, 404}, (name, answer.body)
        assert answer.code in {"EXECUTION_NOT_FOUND", "ROUTE_NOT_FOUND", "INVALID_REQUEST"}


def test_another_sandbox_s_execution_is_not_found(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.ok("POST", "/v1/run", {"argv": ["echo", "x"]})
    answer = daemon.request("GET", f"{executions(sandbox)}/{ran['id']}")
    refused(answer, 404, "EXECUTION_NOT_FOUND")


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/", "/v2/host", "/v1/sandbox", "/v1/sandboxes/", "/V1/host", "//v1/host",
     "/v1/../healthz", "/v1/./host", "/v1/sandboxes/../host", "/v1/%2e%2e/healthz", "/healthz/x",
     "/v1/host%00", "/v1%2fhost"],
)  # fmt: skip
def test_an_unknown_route(daemon: Daemon, path: str) -> None:
    refused(daemon.request("GET", path), 404, "ROUTE_NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/v1/sandboxes"), ("PUT", "/v1/sandboxes"), ("PATCH", "/v1/sandboxes"),
     ("POST", "/healthz"), ("POST", "/v1/host"), ("GET", "/v1/run"), ("TRACE", "/v1/host"),
     ("NOSUCH", "/v1/host"), ("get", "/v1/host")],
)  # fmt: skip
def test_a_method_that_the_route_does_not_have(daemon: Daemon, method: str, path: str) -> None:
    answer = daemon.request(method, path)
    if method in {"get", "NOSUCH"} and answer.status == 400:
        refused(answer, 400, "INVALID_REQUEST")
        return
    error = refused(answer, 405, "METHOD_NOT_ALLOWED")
    assert error["message"]
    allowed = {one.strip() for one in answer.headers["Allow"].split(",")}
    assert allowed
    assert method not in allowed


@pytest.mark.parametrize(
    "data",
    [b"GARBAGE\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\0" * 64,
     b"GET /healthz HTTP/9.9\r\n\r\n", b"GET /healthz HTTP/1.1\r\nA B: c\r\n\r\n",
     b"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
     b"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
     b"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n",
     b"GET /healthz HTTP/1.1\r\n" + b"A: " + b"x" * 100_000 + b"\r\n\r\n",
     b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n"],
)  # fmt: skip
def test_bytes_that_are_not_http(daemon: Daemon, data: bytes) -> None:
    answer = raw(daemon, data)
    if answer:
        status = int(answer.split(b" ", 2)[1])
        assert 400 <= status < 500, answer[:300]
        assert b'"code"' in answer
        assert b"Traceback" not in answer
    assert daemon.ok("GET", "/healthz")["status"] == "ok"


def test_a_body_that_never_comes_leaves_nothing(daemon: Daemon) -> None:
    before = daemon.ok("GET", "/v1/host")["capacity"]["committed_bytes"]
    head = b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    raw(daemon, head + b'Content-Length: 100\r\n\r\n{"name": "half"')
    refused(daemon.request("GET", "/v1/sandboxes/half"), 404, "SANDBOX_NOT_FOUND")
    assert daemon.ok("GET", "/v1/host")["capacity"]["committed_bytes"] == before


def test_every_answer_has_a_request_id_of_its_own(daemon: Daemon) -> None:
    found = {daemon.request("GET", path).headers["X-Request-Id"]
             for path in ("/healthz", "/healthz", "/nosuch", "/v1/host")}  # fmt: skip
    assert len(found) == 4
