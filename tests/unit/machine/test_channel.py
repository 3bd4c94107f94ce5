# SPDX-License-Identifier: Apache-2.0
"""The host's end against a peer that does what a machine might."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.machine.channel import Channel, DeadlinePassed, MachineDied
from tests.machine.host import MachineError
from tests.machine.wire import Decoder, Frame, Kind, encode

Script = Callable[[socket.socket, Iterator[Frame]], None]


def frames_of(peer: socket.socket) -> Iterator[Frame]:
    decoder = Decoder()
    while data := peer.recv(65536):
        yield from decoder.feed(data)


@pytest.fixture
def machine() -> Iterator[Callable[[Script], Channel]]:
    """Start a scripted machine; its "process" is this one, which stays alive."""
    process_fd = os.pidfd_open(os.getpid())
    opened: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(script: Script) -> Channel:
        ours, peer = socket.socketpair()
        opened.extend((ours, peer))
        thread = threading.Thread(target=script, args=(peer, frames_of(peer)))
        thread.start()
        threads.append(thread)
        return Channel(ours, process_fd)

    yield start
    for each in opened:
        if each.fileno() >= 0:
            each.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(10)
    for each in opened:
        each.close()
    os.close(process_fd)


def soon() -> float:
    return time.monotonic() + 10


def answer_with(**fields: object) -> Script:
    def script(peer: socket.socket, frames: Iterator[Frame]) -> None:
        request = json.loads(next(frames).payload)
        peer.sendall(encode(Kind.STDOUT, b"out"))
        done = {"nonce": request["nonce"], **fields}
        peer.sendall(encode(Kind.DONE, json.dumps(done).encode()))

    return script


def test_hello_drops_what_an_earlier_client_left(
    machine: Callable[[Script], Channel],
) -> None:
    def script(peer: socket.socket, frames: Iterator[Frame]) -> None:
        peer.sendall(encode(Kind.STDOUT, b"old") + encode(Kind.HELLO, b"old") + b"\xa5o\0")
        hello = next(frames)
        peer.sendall(encode(Kind.HELLO, hello.payload) + encode(Kind.STDOUT, b"new"))

    channel = machine(script)
    channel.hello(soon())
    assert next(channel.frames(soon())) == Frame(Kind.STDOUT, b"new")


def test_done_gives_the_status_after_the_output(machine: Callable[[Script], Channel]) -> None:
    channel = machine(answer_with(status=7))
    seen: list[Frame] = []
    nonce = channel.request("run", soon())
    assert channel.finish(nonce, soon(), seen.append)["status"] == 7
    assert seen == [Frame(Kind.STDOUT, b"out")]


def test_an_answer_to_another_request_is_not_believed(
    machine: Callable[[Script], Channel],
) -> None:
    channel = machine(answer_with(nonce="other", status=0))
    nonce = channel.request("run", soon())
    with pytest.raises(MachineError, match="another request"):
        channel.finish(nonce, soon())


def test_an_error_from_inside_is_no_status(machine: Callable[[Script], Channel]) -> None:
    channel = machine(answer_with(error="the command's unit was killed"))
    nonce = channel.request("run", soon())
    with pytest.raises(MachineError, match="unit was killed"):
        channel.finish(nonce, soon())


def test_silence_ends_at_the_deadline(machine: Callable[[Script], Channel]) -> None:
    channel = machine(lambda peer, frames: None)
    with pytest.raises(DeadlinePassed):
        channel.hello(time.monotonic() + 0.05)


def test_a_closed_port_is_a_dead_machine(machine: Callable[[Script], Channel]) -> None:
    channel = machine(lambda peer, frames: peer.shutdown(socket.SHUT_RDWR))
    with pytest.raises(MachineDied):
        channel.hello(soon())
