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
from sandboxd.client.refusals import ConnectionLost, DaemonUnreachable, UnknownRefusal, refusal


@contextmanager
def listening(path: Path, backlog: int = 8) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(backlog)
        yield listener


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
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
    monkeypatch.setattr(transport, "_BUSY_SECONDS", 0.1)
    with listening(tmp_path / "s", backlog=0), socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(str(tmp_path / "s"))
        with pytest.raises(DaemonUnreachable) as unreachable:
            Client(str(tmp_path / "s")).host()
        assert unreachable.value.number == errno.EAGAIN


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", b"what?\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"],
)  # fmt: skip
def test_a_broken_answer_is_a_lost_connection(tmp_path: Path, data: bytes) -> None:
    with listening(tmp_path / "s") as listener, in_thread(lambda: answer(listener, data)):
        with pytest.raises(ConnectionLost):
            Client(str(tmp_path / "s")).host()


def test_no_answer_in_time_is_a_lost_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxd.client.calls._TIMEOUT_SECONDS", 0.1)
    with listening(tmp_path / "s"), pytest.raises(ConnectionLost, match=r"within 0\.1 seconds"):
        Client(str(tmp_path / "s")).host()


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


def form(code: str) -> bytes:
    error = {
        "code": code, "message": "cannot", "hint": "do", "retryable": False,
        "details": {"a": 1}, "request_id": "abcdefghijkl",
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
    assert (error.message, error.hint) == ("cannot", "do")
    assert error.details["request_id"] == "abcdefghijkl"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": 1}', b'{"error": {}}'])
def test_a_refusal_in_another_form_is_said_to_be_one(body: bytes) -> None:
    assert isinstance(refusal(502, body), UnknownRefusal)
