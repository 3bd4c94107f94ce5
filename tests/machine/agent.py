# SPDX-License-Identifier: Apache-2.0
"""The agent inside the machine: one thread per virtio-serial port, one operation at a time each.

Runs as `python3 -m tests.machine.agent` in machine-agent.service. Operations, each a REQUEST
with a DONE at the end that carries the request's nonce back:

- run: start a command in a unit of its own (see `command.py`), pass its output on;
- unpack: make a directory equal to the tar stream that follows;
- pack: send directories as a tar stream.

Standard library only; never imported on the host but by the type checker and tests.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from .command import Command
from .port import Disconnected, Port, Restarted
from .trees import ChunkReader, ChunkWriter, pack, unpack
from .wire import MAX_PAYLOAD, Frame, Kind

PORTS = Path("/dev/virtio-ports")
PORT_PREFIX = "machine.port"


def serve(port: Port) -> None:
    """Serve one client after the other, for as long as the machine lives."""
    token: bytes | None = None
    while True:
        try:
            port.wait_for_client()
            if token is not None:
                port.send(Kind.HELLO, token)
                token = None
            while True:
                _handle(port, port.receive())
        except Disconnected:
            continue
        except Restarted as restarted:
            token = restarted.token


def _handle(port: Port, frame: Frame) -> None:
    if frame.kind is Kind.HELLO:
        raise Restarted(frame.payload)
    if frame.kind is Kind.REQUEST:
        request = json.loads(frame.payload)
        try:
            done = _OPERATIONS[request["operation"]](port, request)
        except (OSError, ValueError, KeyError) as error:
            traceback.print_exc()
            done = {"error": f"{type(error).__name__}: {error}"}
        port.send(Kind.DONE, json.dumps({"nonce": request.get("nonce"), **done}).encode())


def _run(port: Port, request: dict[str, Any]) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        command = Command(request)
        stack.callback(command.end)
        command.start()
        while open_fds := command.open_fds():
            poller = select.poll()
            poller.register(port, select.POLLIN)
            for fd in open_fds:
                poller.register(fd, select.POLLIN)
            for fd, _ in poller.poll(command.patience_milliseconds()):
                if fd == port.fileno():
                    _while_running(port.receive_now(), command)
                else:
                    for kind, data in command.read(fd):
                        port.send(kind, data)
            if command.given_up():
                break
    return command.result()


def _while_running(frames: list[Frame], command: Command) -> None:
    for frame in frames:
        if frame.kind is Kind.KILL:
            command.kill()
        elif frame.kind is Kind.HELLO:
            raise Restarted(frame.payload)


def _unpack(port: Port, request: dict[str, Any]) -> dict[str, Any]:
    def chunk() -> bytes:
        frame = port.receive()
        if frame.kind is Kind.HELLO:
            raise Restarted(frame.payload)
        return frame.payload if frame.kind is Kind.DATA else b""

    return unpack(ChunkReader(chunk), Path(request["into"]))


def _pack(port: Port, request: dict[str, Any]) -> dict[str, Any]:
    writer = ChunkWriter(lambda data: port.send(Kind.DATA, data), MAX_PAYLOAD)
    pack(writer, Path(request["directory"]))
    writer.flush()
    port.send(Kind.END)
    return {}


_OPERATIONS = {"run": _run, "unpack": _unpack, "pack": _pack}


def main() -> int:
    """Serve every port of the machine until killed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    client_came = threading.Condition()
    paths = sorted(PORTS.glob(f"{PORT_PREFIX}*"))
    if not paths:
        sys.stderr.write(f"cannot serve: no {PORT_PREFIX}* in {PORTS}\n")
        return 1
    for path in paths:
        threading.Thread(target=serve, args=(Port(path, client_came),), daemon=True).start()
    while True:
        signal.sigwaitinfo({signal.SIGIO})
        with client_came:
            client_came.notify_all()


if __name__ == "__main__":
    sys.exit(main())
