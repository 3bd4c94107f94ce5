# SPDX-License-Identifier: Apache-2.0
"""A spawner goes on after requests that are none."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.launch.spawner import spawner_argv
from sandboxd.osutil import seqpacket
from sandboxd.protocol.records import PROTOCOL
from sandboxd.protocol.spawning import (
    ANSWERS,
    REQUESTS,
    ForkBuilder,
    Greeting,
    Hello,
    Refused,
    Spawn,
)


@pytest.fixture
def spawner(tmp_path: Path) -> Iterator[socket.socket]:
    path = str(tmp_path / "socket")
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ready.settimeout(20)
    ready.bind(str(tmp_path / "ready"))
    environment = {"PATH": os.defpath, "NOTIFY_SOCKET": str(tmp_path / "ready")}
    argv = spawner_argv(path, idle_seconds=60.0)
    with ready, subprocess.Popen(argv, env=environment) as process:
        assert ready.recv(100) == b"READY=1"
        with seqpacket.connect(path, timeout_seconds=20) as connection:
            yield connection
        process.kill()


def ask(connection: socket.socket, packet: bytes, *fds: int) -> object:
    socket.send_fds(connection, [packet], fds)
    return ANSWERS.decode(connection.recv(4096))


def test_a_spawner_greets(spawner: socket.socket) -> None:
    greeting = ask(spawner, REQUESTS.encode(Hello()))
    assert isinstance(greeting, Greeting)
    assert (greeting.protocol, greeting.shims) == (PROTOCOL, 0)


@pytest.mark.parametrize("packet", [b"{", b'{"op": "dance"}', b'{"op": "hello", "loudly": true}'])
def test_no_request(spawner: socket.socket, packet: bytes) -> None:
    assert isinstance(ask(spawner, packet), Refused)
    assert isinstance(ask(spawner, REQUESTS.encode(Hello())), Greeting)


@pytest.mark.parametrize("request_", [Spawn(), ForkBuilder()])
def test_a_request_without_its_descriptors(
    spawner: socket.socket, request_: Spawn | ForkBuilder
) -> None:
    refused = ask(spawner, REQUESTS.encode(request_), spawner.fileno())
    assert refused == Refused(0, "1 descriptors came with the request")
