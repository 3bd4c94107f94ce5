# SPDX-License-Identifier: Apache-2.0
"""The client when all is not well: no daemon, a busy one, a dying one, a strange one."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd import errors
from sandboxd.client import transport
from sandboxd.client.calls import Client
from sandboxd.client.refusals import (
    ConnectionLost,
    DaemonUnreachable,
    ServerTooOld,
    UnknownRefusal,
    refusal,
)
from sandboxd.client.request import Request


@contextmanager
def listening(path: Path, backlog: int = 8) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(backlog)
        yield listener


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(10)


def answer(listener: socket.socket, data: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(data)


def test_nobody_there(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with pytest.raises(DaemonUnreachable) as unreachable:
        Client(str(path)).host()
    assert unreachable.value.number == errno.ENOENT
    with listening(path):
        pass
    with pytest.raises(DaemonUnreachable) as unreachable:
        Client(str(path)).host()
    assert unreachable.value.number == errno.ECONNREFUSED
    with pytest.raises(DaemonUnreachable):
        Client(str(tmp_path / ("x" * 120))).host()


def test_a_full_backlog_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(path, backlog=0) as listener:
        waiting = socket.socket(socket.AF_UNIX)
        waiting.connect(str(path))
        body = b"{}"
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"

        def serve() -> None:
            listener.accept()[0].close()
            answer(listener, head + body)

        timer = threading.Timer(0.2, serve)
        timer.start()
        assert Client(str(path)).host() == {}
        timer.join()
        waiting.close()


def test_a_backlog_that_stays_full_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "BUSY_SECONDS", 0.1)
    with listening(tmp_path / "s", backlog=0), socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(str(tmp_path / "s"))
        with pytest.raises(DaemonUnreachable) as unreachable:
            Client(str(tmp_path / "s")).host()
        assert unreachable.value.number == errno.EAGAIN


@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", b"what?\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"],
)  # fmt: skip
def test_a_broken_answer_is_a_lost_connection(tmp_path: Path, data: bytes) -> None:
    with listening(tmp_path / "s") as listener, in_thread(lambda: answer(listener, data)):
        with pytest.raises(ConnectionLost):
            Client(str(tmp_path / "s")).host()


def test_no_answer_in_time_is_a_lost_connection(tmp_path: Path) -> None:
    with listening(tmp_path / "s"), pytest.raises(ConnectionLost, match=r"within 0\.1 seconds"):
        Client(str(tmp_path / "s")).ask(Request("GET", "/v1/host", timeout_seconds=0.1))


def serve(listener: socket.socket, answers: list[bytes]) -> list[bytes]:
    """Answer one connection after the other; returns what was asked."""
    asked = []
    for data in answers:
        connection, _ = listener.accept()
        with connection:
            asked.append(connection.recv(65536))
            connection.sendall(data)
    return asked


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
WITH_KEYS = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{..Idempotency-Key..}"


def test_what_is_idempotent_is_asked_again(tmp_path: Path) -> None:
    with listening(tmp_path / "s") as listener, in_thread(lambda: serve(listener, [b"", b"", OK])):
        assert Client(str(tmp_path / "s")).host() == {}


def test_it_is_not_asked_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxd.client.request._PAUSES_SECONDS", (0.0, 0.0))
    with listening(tmp_path / "s") as listener, in_thread(lambda: serve(listener, [b""] * 3)):
        with pytest.raises(ConnectionLost, match="closed the connection"):
            Client(str(tmp_path / "s")).host()


@pytest.mark.parametrize(
    "answers", [[b"", WITH_KEYS, OK], [b"", b"", WITH_KEYS, b"", WITH_KEYS, OK]]
)
def test_a_post_is_repeated_with_its_key_where_keys_are_kept(
    tmp_path: Path, answers: list[bytes]
) -> None:
    asked: list[bytes] = []
    with listening(tmp_path / "s") as listener:
        with in_thread(lambda: asked.extend(serve(listener, answers))):
            assert Client(str(tmp_path / "s")).create_sandbox({}) == {}
    posts = {one for one in asked if one.startswith(b"POST ")}
    assert len(posts) == 1
    assert b"\r\nIdempotency-Key: " in posts.pop()
    assert sum(one.startswith(b"POST ") for one in asked) == answers.count(OK) + (len(answers) // 3)


def test_a_post_is_not_repeated_where_they_are_not(tmp_path: Path) -> None:
    asked: list[bytes] = []
    with listening(tmp_path / "s") as listener:
        with in_thread(lambda: asked.extend(serve(listener, [b"", OK]))):
            with pytest.raises(ConnectionLost):
                Client(str(tmp_path / "s")).create_sandbox({})
    assert [one.split()[0] for one in asked] == [b"POST", b"GET"]


def test_with_too_many_keys_it_goes_on_without(tmp_path: Path) -> None:
    asked: list[bytes] = []
    refused = form("CALLER_QUOTA_EXCEEDED", {"quota": "idempotency_keys"})
    head = b"HTTP/1.1 429 No\r\nContent-Length: %d\r\n\r\n" % len(refused)
    with listening(tmp_path / "s") as listener:
        with in_thread(lambda: asked.extend(serve(listener, [head + refused, OK]))):
            assert Client(str(tmp_path / "s")).create_sandbox({}) == {}
    assert [b"Idempotency-Key" in one for one in asked] == [True, False]


def test_an_answer_before_the_body_was_read_is_not_lost(tmp_path: Path) -> None:
    refused = form("REQUEST_TOO_LARGE")
    head = b"HTTP/1.1 413 No\r\nContent-Length: %d\r\n\r\n" % len(refused)

    def refuse(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(head + refused)

    with listening(tmp_path / "s") as listener, in_thread(lambda: refuse(listener)):
        request = Request("PUT", "/x", data=bytes(8 << 20))
        with pytest.raises(errors.RequestTooLarge):
            Client(str(tmp_path / "s")).ask(request)


def test_a_socket_that_may_not_be_used(tmp_path: Path) -> None:
    with listening(tmp_path / "s"):
        (tmp_path / "s").chmod(0)
        before = os.geteuid()
        if before == 0:
            # Root may connect to anything.
            os.seteuid(65534)
        try:
            with pytest.raises(DaemonUnreachable) as unreachable:
                Client(str(tmp_path / "s")).host()
        finally:
            os.seteuid(before)
    assert unreachable.value.number == errno.EACCES


def form(code: str, details: dict[str, object] | None = None, *, retryable: bool = True) -> bytes:
    error = {
        "code": code, "message": "cannot", "hint": "do", "retryable": retryable,
        "details": details or {"a": 1}, "request_id": "abcdefghijkl",
    }  # fmt: skip
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("CAPACITY_EXCEEDED", errors.CapacityExceeded),
        ("SYSTEMD_REFUSED", errors.SchemeError),
        ("SANDBOX_NOT_FOUND", errors.SandboxNotFound),
        ("INTERNAL", errors.SandboxdError),
        ("OF_ANOTHER_VERSION", UnknownRefusal),
    ],
)
def test_a_refusal_is_its_class_again(code: str, kind: type[errors.SandboxdError]) -> None:
    error = refusal(400, form(code))
    assert type(error) is kind
    assert (error.message, error.hint, error.retryable) == ("cannot", "do", True)
    assert not refusal(400, form(code, retryable=False)).retryable
    assert error.details["request_id"] == "abcdefghijkl"


@pytest.mark.parametrize("code", ["ROUTE_NOT_FOUND", "METHOD_NOT_ALLOWED"])
def test_a_route_that_is_not_there_is_told_as_an_old_daemon(code: str) -> None:
    error = refusal(404, form(code))
    assert type(error) is ServerTooOld
    assert "too old" in error.message
    assert error.details["code"] == code
    assert "upgrade" in (error.hint or "")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": 1}', b'{"error": {}}'])
def test_a_refusal_in_another_form_is_said_to_be_one(body: bytes) -> None:
    assert isinstance(refusal(502, body), UnknownRefusal)
