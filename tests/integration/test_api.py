# SPDX-License-Identifier: Apache-2.0
"""The HTTP layer in a real daemon process: memory, crowds, shutdown, and its own description."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from typing import Any

from tests.contract.probes import resident_bytes
from tests.fixtures import daemon_fixture
from tests.harness import Answer, Daemon, running_daemon

MIB = 1 << 20
daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off")


def answer_of(connection: socket.socket) -> Answer:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return Answer(response.status, dict(response.getheaders()), response.read())


def test_a_huge_body_is_refused_with_flat_memory(daemon: Daemon) -> None:
    before = resident_bytes(daemon)
    for length in (b"Content-Length: 104857600", b"Transfer-Encoding: chunked"):
        with daemon.connect() as connection:
            head = b"POST /v1/run HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            connection.sendall(head + length + b"\r\n\r\n")
            chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for _ in range(100):
                    connection.sendall(chunk)
            with contextlib.suppress(ConnectionResetError):
                assert answer_of(connection).code == "REQUEST_TOO_LARGE"
    assert resident_bytes(daemon) - before < 32 * MIB


def test_large_output_is_read_with_flat_memory(daemon: Daemon) -> None:
    sandbox = daemon.create()
    size = 200 * MIB
    try:
        done = daemon.execute(
            sandbox["id"], f"head -c {size} /dev/zero", max_output_bytes="1G", timeout_seconds=50
        )
        assert done["status"] == "EXITED"
        assert (done["stdout_bytes"], done["stdout_inline_truncated"]) == (size, True)
        before = resident_bytes(daemon)
        target = f"/v1/sandboxes/{sandbox['id']}/executions/{done['id']}/output?offset=1"
        with daemon.connect() as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            response = http.client.HTTPResponse(connection)
            response.begin()
            got = 0
            while chunk := response.read(MIB):
                got += len(chunk)
        assert got == size - 1
        assert resident_bytes(daemon) - before < 16 * MIB
    finally:
        daemon.release(sandbox["id"])


def test_a_crowd_of_idle_and_half_sent_connections_stops_nobody(daemon: Daemon) -> None:
    with contextlib.ExitStack() as crowd:
        for number in range(600):
            connection = crowd.enter_context(daemon.connect())
            if number % 2:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        begun = time.monotonic()
        assert daemon.ok("GET", "/readyz") == {"ready": True}
        assert time.monotonic() - begun < 5


def test_pipelined_requests_are_answered_in_order(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        one = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"
        connection.sendall(one % b"readyz" + one % b"nosuch" + one % b"readyz")
        answers = b""
        while answers.count(b"HTTP/1.1 ") < 3 or not answers.endswith(b"}"):
            answers += connection.recv(65536)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"200", b"404", b"200"]


def test_answers_are_what_openapi_says(daemon: Daemon) -> None:
    schemas = daemon.ok("GET", "/openapi.json")["components"]["schemas"]
    run = daemon.ok("POST", "/v1/run", {"argv": ["true"]})
    sandbox = daemon.ok("GET", f"/v1/sandboxes/{run['sandbox_id']}")
    for name, answer in {
        "ExecutionAnswer": run,
        "SandboxAnswer": sandbox,
        "HostAnswer": daemon.ok("GET", "/v1/host"),
        "HealthAnswer": daemon.ok("GET", "/healthz"),
        "ErrorAnswer": daemon.request("GET", "/v1/nosuch").json,
    }.items():
        check(answer, {"$ref": f"#/components/schemas/{name}"}, schemas, name)


def check(value: Any, schema: Any, schemas: Any, path: str) -> None:
    """The part of JSON Schema that the document uses."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        fitting = []
        for choice in schema["anyOf"]:
            with contextlib.suppress(AssertionError):
                check(value, choice, schemas, path)
                fitting.append(choice)
        assert fitting, (path, value, schema)
        return
    kinds: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (path, value)
    if "enum" in schema:
        assert value in schema["enum"], (path, value)
    if schema.get("type") == "object" and "properties" in schema:
        assert set(schema.get("required", ())) <= set(value), path
        assert set(value) <= set(schema["properties"]), path
        for name, inner in value.items():
            check(inner, schema["properties"][name], schemas, f"{path}.{name}")
    elif schema.get("type") == "object":
        for name, inner in value.items():
            check(inner, schema.get("additionalProperties") or {}, schemas, f"{path}.{name}")
    elif schema.get("type") == "array":
        for inner in value:
            check(inner, schema.get("items", {}), schemas, f"{path}[]")


def test_sigterm_ends_waiting_requests_and_not_their_executions() -> None:
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        sandbox = daemon.create()
        target = f"/v1/sandboxes/{sandbox['id']}/executions"
        answers: list[Answer] = []
        waiting = threading.Thread(
            target=lambda: answers.append(daemon.request("POST", target, {"argv": ["sleep", "60"]}))
        )
        waiting.start()
        give_up = time.monotonic() + 30
        while not daemon.ok("GET", target)["executions"] and time.monotonic() < give_up:
            time.sleep(0.02)
        begun = time.monotonic()
        assert daemon.stop() == 0
        # Serving ends within two seconds; the rest is the interpreter's own end on a busy host.
        assert time.monotonic() - begun < 6
        waiting.join(10)
        [answer] = answers
        assert (answer.status, answer.code) == (503, "DRAINING")
        daemon.start()
        [execution] = daemon.ok("GET", target)["executions"]
        assert execution["status"] == "RUNNING"
