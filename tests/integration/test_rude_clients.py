# SPDX-License-Identifier: Apache-2.0
"""Clients that send without end, read nothing or leave: bounded, and nobody else notices."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.probes import descriptors, eventually, resident_bytes
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

MIB = 1 << 20
GIB = 1 << 30
HEAD = b"POST /v1/run HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
daemon = daemon_fixture(SANDBOX_MEMORY_LIMIT_BYTES="64M")


@contextmanager
def others_unaffected(daemon: Daemon, *, memory_bytes: int = 32 * MIB) -> Iterator[None]:
    """Somebody else works all the time, and the daemon's memory and descriptors stay as they
    were."""
    daemon.ok("POST", "/v1/run", {"argv": ["true"]})
    memory, open_before = resident_bytes(daemon), descriptors(daemon)
    stop = threading.Event()
    failures: list[Any] = []
    rounds: list[float] = []

    def work() -> None:
        while not stop.is_set() or not rounds:
            begun = time.monotonic()
            answer = daemon.request("POST", "/v1/run", {"command": "echo hi"}, timeout=30)
            if answer.status != 200 or answer.json["stdout"] != "hi\n":
                failures.append(answer)
            rounds.append(time.monotonic() - begun)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join(60)
    assert not failures
    # No measure of speed: far from the deadlines that a held-up loop would run into.
    assert max(rounds) < 20
    assert resident_bytes(daemon) - memory < memory_bytes
    eventually(lambda: descriptors(daemon) <= open_before + 4)


def send_all(connection: socket.socket, data: bytes, times: int) -> int:
    """How many times `data` was taken before the server closed."""
    taken = 0
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while taken < times:
            connection.sendall(data)
            taken += 1
    return taken


def test_a_body_of_ten_gib_is_refused(daemon: Daemon) -> None:
    with others_unaffected(daemon), daemon.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (10 * GIB))
        # Refused by its length; what still comes in the seconds after that is thrown away.
        assert send_all(connection, b" " * MIB, 10 << 10) < 10 << 10
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(4096).split(b" ")[1] == b"413"


def test_a_chunked_body_without_end_is_refused(daemon: Daemon) -> None:
    with others_unaffected(daemon), daemon.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        # What still comes in the first seconds after the refusal is thrown away.
        chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
        assert send_all(connection, chunk, 10 << 10) < 10 << 10


@pytest.mark.parametrize(
    "line", [b"X-Header: " + b"x" * 60 + b"\r\n", b"x" * 100, b"\0" * 100],
    ids=["many", "one long line", "zeros"],
)  # fmt: skip
def test_headers_without_end_are_refused(daemon: Daemon, line: bytes) -> None:
    with others_unaffected(daemon), daemon.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
        assert send_all(connection, line, 1_000_000) < 1_000_000
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(4096).split(b" ")[1] in (b"400", b"431", b"")


def test_pipelined_garbage_ends_only_its_own_connection(daemon: Daemon) -> None:
    good = b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n"
    with others_unaffected(daemon), daemon.connect() as connection:
        connection.sendall(good * 20 + b"\x16\x03\x01garbage\r\n\r\n" + good * 20)
        answers = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(65536):
                answers += data
        # The parser takes all that came together, or nothing of it.
        assert answers.count(b" 200 OK\r\n") <= 20
        assert answers.count(b" 400 Bad Request\r\n") == 1


def test_pipelined_requests_without_reading_are_held_up(daemon: Daemon) -> None:
    """The answers to what one sends stop being made when it does not take them."""
    good = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"
    with others_unaffected(daemon), daemon.connect(timeout=3) as connection:
        with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
            for _ in range(20_000):
                connection.sendall(good)


def test_two_hundred_idle_connections(daemon: Daemon) -> None:
    with others_unaffected(daemon), contextlib.ExitStack() as crowd:
        for number in range(200):
            connection = crowd.enter_context(daemon.connect())
            if number % 2:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        assert daemon.ok("GET", "/readyz") == {"ready": True}


def test_a_reader_that_takes_nothing_of_large_output(daemon: Daemon) -> None:
    sandbox = daemon.create()
    ran = daemon.execute(
        sandbox["id"], "head -c 200M /dev/zero", max_output_bytes="1G", timeout_seconds=60
    )
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{ran['id']}/output"
    with others_unaffected(daemon), contextlib.ExitStack() as slow:
        for _ in range(8):
            connection = slow.enter_context(daemon.connect())
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert connection.recv(1024).startswith(b"HTTP/1.1 200 OK")
    daemon.release(sandbox["id"])


def test_a_client_that_is_killed_while_it_waits(daemon: Daemon) -> None:
    sandbox = daemon.create()
    target = f"/v1/sandboxes/{sandbox['id']}/executions"
    body = json.dumps({"command": "sleep 2; echo done"}).encode()
    request = f"POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    with others_unaffected(daemon):
        pid = os.fork()
        if pid == 0:
            connection = daemon.connect()
            connection.sendall(f"{request}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            connection.recv(1)
            os._exit(0)
        [waiting] = eventually(lambda: daemon.ok("GET", target)["executions"])
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        ended = daemon.wait(waiting)
        assert (ended["status"], ended["stdout"]) == ("EXITED", "done\n")
    daemon.release(sandbox["id"])


def test_followers_of_events_that_read_nothing(daemon: Daemon) -> None:
    with others_unaffected(daemon), contextlib.ExitStack() as slow:
        for _ in range(50):
            connection = slow.enter_context(daemon.connect())
            connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.recv(1024).startswith(b"HTTP/1.1 200 OK")
        sandbox = daemon.create(name="followed")
        daemon.release(sandbox["id"])
        with daemon.connect() as reading:
            reading.sendall(b"GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
            response = http.client.HTTPResponse(reading)
            response.begin()
            made = daemon.create(name="seen")
            seen = b""
            while b"seen" not in seen:
                seen += response.read1(4096)
        daemon.release(made["id"])


def test_two_hundred_large_answers_that_nobody_reads(daemon: Daemon) -> None:
    """A MiB of zeros is six in JSON."""
    sandbox = daemon.create()
    ran = daemon.execute(sandbox["id"], "head -c 1M /dev/zero; head -c 1M /dev/zero >&2")
    assert ran["stdout"] == ran["stderr"] == "\0" * MIB
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{ran['id']}"
    with others_unaffected(daemon, memory_bytes=96 * MIB), contextlib.ExitStack() as slow:
        for _ in range(200):
            connection = slow.enter_context(daemon.connect())
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        # The daemon does not tell when it has had a look at all.
        time.sleep(3)
    # Those who left had their places taken from them.
    assert daemon.ok("GET", target)["stdout"] == "\0" * MIB
    daemon.release(sandbox["id"])


def test_lists_of_large_records_come_in_pages(daemon: Daemon) -> None:
    env = {f"A{n}": "a" * 100_000 for n in range(19)}
    made = [daemon.create(env=env, limits={"memory_bytes": "8M"})["id"] for _ in range(10)]
    with others_unaffected(daemon, memory_bytes=96 * MIB), contextlib.ExitStack() as slow:
        for _ in range(50):
            connection = slow.enter_context(daemon.connect())
            connection.sendall(b"GET /v1/sandboxes?limit=1000 HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(2)
    seen, query = [], "?state=ready&limit=1000"
    cursor: str | None = ""
    while cursor is not None:
        page = daemon.ok("GET", f"/v1/sandboxes{query}" + (f"&cursor={cursor}" if cursor else ""))
        assert len(json.dumps(page["sandboxes"])) < 3 * MIB
        seen += [each["id"] for each in page["sandboxes"]]
        cursor = page["next_cursor"]
    assert [each for each in seen if each in made] == made
    refused = [daemon.request("POST", "/v1/sandboxes", {"env": env}) for _ in range(10)]
    assert refused[-1].status == 429
    assert refused[-1].json["error"]["details"]["quota"] == "record_bytes"
    for each in [*made, *(one.json["id"] for one in refused if one.status == 201)]:
        daemon.release(each)


def test_many_bodies_that_do_not_end(daemon: Daemon) -> None:
    with others_unaffected(daemon, memory_bytes=96 * MIB), contextlib.ExitStack() as slow:
        for _ in range(120):
            connection = slow.enter_context(daemon.connect())
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (8 * MIB))
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(127):
                    connection.send(b" " * (64 << 10))
        time.sleep(2)
