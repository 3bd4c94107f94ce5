# SPDX-License-Identifier: Apache-2.0
"""The host's end of a port: ask the agent for one operation and follow it to its DONE."""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from . import recipe
from .host import MachineError
from .qemu import short_path
from .wire import MAX_PAYLOAD, RESYNC, Decoder, Frame, Kind, encode


class MachineDied(MachineError):
    """The machine's process ended."""


class DeadlinePassed(MachineError):
    """The machine did not do it in time."""


class Channel:
    """A connected port. One operation at a time; every wait has a deadline (monotonic)."""

    def __init__(self, connection: socket.socket, process_fd: int) -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self._process_fd = process_fd
        self._decoder = Decoder()
        self._frames: list[Frame] = []

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def hello(self, deadline: float) -> None:
        """Return once the agent answers, with nothing of an earlier client left between."""
        token = os.urandom(16).hex().encode()
        answer = encode(Kind.HELLO, token)
        self._send_bytes(RESYNC + answer, deadline)
        seen = bytearray()
        while (found := seen.find(answer)) < 0:
            del seen[: -len(answer)]
            seen += self._read(deadline)
        self._frames = self._decoder.feed(bytes(seen[found + len(answer) :]))

    def request(self, operation: str, deadline: float, **arguments: Any) -> str:
        """Start an operation; the nonce that is returned proves its DONE."""
        nonce = os.urandom(16).hex()
        request = {"operation": operation, "nonce": nonce, **arguments}
        self.send(Kind.REQUEST, json.dumps(request).encode(), deadline)
        return nonce

    def send(self, kind: Kind, payload: bytes, deadline: float) -> None:
        """Send one frame."""
        self._send_bytes(encode(kind, payload), deadline)

    def frames(self, deadline: float) -> Iterator[Frame]:
        """Yield frames as they come. Raises DeadlinePassed, MachineDied."""
        while True:
            while self._frames:
                yield self._frames.pop(0)
            self._frames = self._decoder.feed(self._read(deadline))

    def finish(
        self, nonce: str, deadline: float, take: Callable[[Frame], None] = lambda frame: None
    ) -> dict[str, Any]:
        """Give frames to `take` until DONE; return what it says. Raises MachineError."""
        for frame in self.frames(deadline):
            if frame.kind is not Kind.DONE:
                take(frame)
                continue
            done: dict[str, Any] = json.loads(frame.payload)
            if done.get("nonce") != nonce:
                raise MachineError("cannot trust the machine: the answer is to another request")
            if "error" in done:
                raise MachineError(f"the machine could not do it: {done['error']}")
            return done
        raise AssertionError("frames() ends only by raising")

    def _send_bytes(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(select.POLLOUT, deadline)
            try:
                view = view[self._socket.send(view) :]
            except ConnectionError as error:
                raise MachineDied("the machine ended") from error

    def _read(self, deadline: float) -> bytes:
        self._wait(select.POLLIN, deadline)
        try:
            data = self._socket.recv(MAX_PAYLOAD)
        except ConnectionError as error:
            raise MachineDied("the machine ended") from error
        if not data:
            raise MachineDied("the machine ended")
        return data

    def _wait(self, event: int, deadline: float) -> None:
        poller = select.poll()
        poller.register(self._socket, event)
        poller.register(self._process_fd, select.POLLIN)
        ready = dict(poller.poll(max(0, int((deadline - time.monotonic()) * 1000))))
        if self._socket.fileno() in ready:
            return
        if ready:
            raise MachineDied("the machine ended")
        raise DeadlinePassed("the machine did not answer in time")


@contextmanager
def connect(directory: Path, process_fd: int, deadline: float) -> Iterator[Channel]:
    """Yield a channel on the first port of the machine that no other client uses."""
    for number in range(recipe.PORTS):
        with (directory / f"port{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                _connect(connection, directory, f"port{number}.sock")
                channel = Channel(connection, process_fd)
                channel.hello(deadline)
                yield channel
                return
    raise MachineError(f"cannot reach the machine: all {recipe.PORTS} ports are in use")


def _connect(connection: socket.socket, directory: Path, name: str) -> None:
    try:
        with short_path(directory) as path:
            connection.connect(f"{path}/{name}")
    except OSError as error:
        raise MachineDied(f"cannot reach the machine: {error.strerror}") from error


def pass_on(frame: Frame) -> None:
    """Write a command's output where it belongs, at once."""
    if frame.kind in (Kind.STDOUT, Kind.STDERR):
        stream = sys.stdout if frame.kind is Kind.STDOUT else sys.stderr
        stream.buffer.write(frame.payload)
        stream.buffer.flush()
