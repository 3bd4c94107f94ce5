# SPDX-License-Identifier: Apache-2.0
"""A server in a poll loop, and those who ask."""

from __future__ import annotations

import os
import select
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandboxd.osutil import seqpacket
from sandboxd.osutil.objects import encode


class Served:
    """A server on a path, whose poll loop the test drives."""

    def __init__(self, path: Path, *, newest_stays: bool = False) -> None:
        self.path = str(path)
        self.poll = select.poll()
        self.listener = seqpacket.listen(self.path, backlog=8)
        self.server = seqpacket.Server(
            self.listener, self.poll, most=2, max_bytes=256, max_fds=1, newest_stays=newest_stays
        )

    def turn(self) -> list[seqpacket.Received]:
        """All that one poll reports, accepted or received."""
        found = []
        for fd, _ in self.poll.poll(5000):
            if fd == self.server.fileno():
                self.server.accept()
            elif (received := self.server.receive(fd)) is not None:
                found.append(received)
        return found

    def close(self) -> None:
        for connection in self.server.connections.values():
            connection.close()
        self.listener.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as undo:
        yield undo


def served(stack: ExitStack, path: Path, *, newest_stays: bool = False) -> Served:
    made = Served(path, newest_stays=newest_stays)
    stack.callback(made.close)
    return made


def connect(stack: ExitStack, path: str) -> socket.socket:
    return stack.enter_context(seqpacket.connect(path, timeout_seconds=5))


def test_takes_the_place_of_what_was_there(stack: ExitStack, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("something else")
    served(stack, path)
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_question_is_answered(stack: ExitStack, tmp_path: Path) -> None:
    made = served(stack, tmp_path / "socket")
    answers = []

    def ask() -> None:
        question = b"hello"
        answers.append(seqpacket.ask(made.path, question, timeout_seconds=5, max_bytes=256))

    asking = threading.Thread(target=ask)
    asking.start()
    assert made.turn() == []
    (received,) = made.turn()
    assert received.packet == b"hello"
    made.server.send(received.connection, b"good day")
    asking.join()
    assert answers == [b"good day"]


def test_nobody_to_ask(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        seqpacket.ask(str(tmp_path / "none"), b"hello", timeout_seconds=5, max_bytes=256)


def test_a_descriptor_comes_along(stack: ExitStack, tmp_path: Path) -> None:
    made = served(stack, tmp_path / "socket")
    client = connect(stack, made.path)
    made.turn()
    fd = os.open(tmp_path, os.O_RDONLY)
    socket.send_fds(client, [encode({"op": "take"})], [fd, fd])
    (received,) = made.turn()
    # The kernel drops what there is no room for.
    (given,) = received.fds
    assert os.path.samestat(os.fstat(given), os.fstat(fd))
    made.server.send(received.connection, encode({"ok": True}), [given])
    _, (back,), _, _ = socket.recv_fds(client, 256, 1)
    assert os.path.samestat(os.fstat(back), os.fstat(fd))
    for one in (fd, given, back):
        os.close(one)


def test_one_too_many_is_turned_away(stack: ExitStack, tmp_path: Path) -> None:
    made = served(stack, tmp_path / "socket")
    clients = [connect(stack, made.path) for _ in range(3)]
    for _ in clients:
        made.turn()
    assert len(made.server.connections) == 2
    assert clients[2].recv(256) == b""


def test_the_newest_takes_the_oldests_place(stack: ExitStack, tmp_path: Path) -> None:
    made = served(stack, tmp_path / "socket", newest_stays=True)
    clients = [connect(stack, made.path) for _ in range(3)]
    for _ in clients:
        made.turn()
    assert len(made.server.connections) == 2
    assert clients[0].recv(256) == b""


def test_another_uid_is_turned_away(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = served(stack, tmp_path / "socket")
    client = connect(stack, made.path)
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    made.turn()
    assert made.server.connections == {}
    assert client.recv(256) == b""


def test_whoever_went_away_is_forgotten(stack: ExitStack, tmp_path: Path) -> None:
    made = served(stack, tmp_path / "socket")
    clients = [connect(stack, made.path) for _ in range(2)]
    for _ in clients:
        made.turn()
    clients[0].close()
    assert made.turn() == []
    (left,) = made.server.connections.values()
    clients[1].close()
    made.server.send(left, b"too late")
    assert made.server.connections == {}


def test_who_does_not_listen_loses_a_message_and_holds_nobody_up(
    stack: ExitStack, tmp_path: Path
) -> None:
    made = served(stack, tmp_path / "socket")
    connect(stack, made.path)
    made.turn()
    (connection,) = made.server.connections.values()
    for _ in range(2000):
        made.server.send(connection, b"x" * 200)
    assert list(made.server.connections.values()) == [connection]
