# SPDX-License-Identifier: Apache-2.0
"""One command inside the machine, in a unit of its own: machine-command@ID.service.

The unit is started over systemd's private socket, so that a test may stop or restart the message
bus below its own feet. The unit's main process is this file's `main`: it asks the agent for the
pipes to write to, starts the command, waits and reports the status. A unit that ends without
that report lost its command. When the main process ends, systemd kills what the command left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .wire import MAX_PAYLOAD, Kind

RUNTIME = Path("/run/machine")
START_SECONDS = 60.0
# What a command that left processes behind in other units may still write after its end.
DRAIN_SECONDS = 2.0


class Command:
    """The agent's end of a command; `open_fds` are what its output and status come from."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._id = os.urandom(6).hex()
        self._directory = RUNTIME / self._id
        self._request = request
        self._kinds: dict[int, Kind] = {}
        self._listener: socket.socket | None = None
        self._control: socket.socket | None = None
        self._given_fds: list[int] = []
        self._report = b""
        self._status: int | None = None
        self._error: str | None = None
        self._deadline: float | None = None

    @property
    def _unit(self) -> str:
        return f"machine-command@{self._id}.service"

    def start(self) -> None:
        """Start the unit. Raises OSError when systemd refuses."""
        self._directory.mkdir(parents=True, mode=0o700)
        (self._directory / "request.json").write_text(json.dumps(self._request))
        for kind in (Kind.STDOUT, Kind.STDERR):
            ours, given = os.pipe()
            self._kinds[ours] = kind
            self._given_fds.append(given)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(self._directory / "control"))
        self._listener.listen(1)
        self._deadline = time.monotonic() + START_SECONDS
        _systemctl("start", "--no-block", self._unit)

    def open_fds(self) -> list[int]:
        """Return the file descriptors that still may become readable."""
        sockets = [each.fileno() for each in (self._listener, self._control) if each is not None]
        return [*sockets, *self._kinds]

    def read(self, fd: int) -> list[tuple[Kind, bytes]]:
        """Take what a readable descriptor has; return output to pass on."""
        if fd in self._kinds:
            data = os.read(fd, MAX_PAYLOAD)
            if data:
                return [(self._kinds[fd], data)]
            del self._kinds[fd]
            os.close(fd)
        elif self._listener is not None and fd == self._listener.fileno():
            self._give_pipes()
        elif self._control is not None:
            self._take_report()
        return []

    def ended(self) -> bool:
        """Tell whether the command's status is known, or known to be lost."""
        return self._status is not None or self._error is not None

    def patience_milliseconds(self) -> int | None:
        """Return how long to wait for the next thing to read; None is for ever."""
        if self._deadline is None:
            return None
        return max(0, int((self._deadline - time.monotonic()) * 1000) + 1)

    def given_up(self) -> bool:
        """Tell whether a deadline has passed: of the start, or of output after the end."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return False
        if not self.ended():
            self._error = f"{self._unit} did not start in {START_SECONDS:.0f} s"
        return True

    def kill(self) -> None:
        """Kill every process of the unit; its status is then the shell's for SIGKILL."""
        self._status = 128 + signal.SIGKILL
        _systemctl("kill", "--signal=SIGKILL", self._unit)

    def end(self) -> None:
        """Free everything; a unit that may still run is stopped."""
        if not self.ended():
            _systemctl("stop", "--no-block", self._unit)
        for each in (self._listener, self._control):
            if each is not None:
                each.close()
        for fd in (*self._kinds, *self._given_fds):
            os.close(fd)
        self._kinds.clear()
        self._given_fds.clear()
        shutil.rmtree(self._directory)

    def result(self) -> dict[str, Any]:
        """Return the status for DONE: what a shell would show, or an error."""
        if self._status is None:
            return {"error": self._error or "the command's end is not known"}
        return {"status": self._status}

    def _give_pipes(self) -> None:
        assert self._listener is not None
        self._control, _ = self._listener.accept()
        self._listener.close()
        self._listener = None
        socket.send_fds(self._control, [b"go"], self._given_fds)
        for fd in self._given_fds:
            os.close(fd)
        self._given_fds.clear()
        self._deadline = None

    def _take_report(self) -> None:
        assert self._control is not None
        data = self._control.recv(4096)
        self._report += data
        if data:
            return
        self._control.close()
        self._control = None
        self._deadline = time.monotonic() + DRAIN_SECONDS
        if self._report.endswith(b"\n"):
            self._status = int(self._report)
        elif self._status is None:
            self._error = "the command's unit was killed"


def main(identifier: str) -> int:
    """Be the unit's main process: run the command and report its status."""
    directory = RUNTIME / identifier
    request = json.loads((directory / "request.json").read_text())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.connect(os.fspath(directory / "control"))
        _, fds, _, _ = socket.recv_fds(control, 16, 2)
        status = _wait_for(request, fds[0], fds[1])
        control.sendall(b"%d\n" % status)
    return 0


def _wait_for(request: dict[str, Any], stdout: int, stderr: int) -> int:
    try:
        process = subprocess.Popen(
            request["argv"],
            cwd=request["directory"],
            env=request["environment"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
    except OSError as error:
        os.write(stderr, f"cannot run {request['argv'][0]}: {error.strerror}\n".encode())
        return 127 if isinstance(error, FileNotFoundError) else 126
    os.close(stdout)
    os.close(stderr)
    status = process.wait()
    return 128 - status if status < 0 else status


def _systemctl(*arguments: str) -> None:
    done = subprocess.run(
        ["systemctl", "--quiet", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=START_SECONDS,
        check=False,
    )
    if done.returncode and arguments[0] == "start":
        raise OSError(f"systemctl {' '.join(arguments)}: {done.stderr.decode().strip()}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main(sys.argv[1]))
