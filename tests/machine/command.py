# SPDX-License-Identifier: Apache-2.0
"""One command inside the machine, in a unit of its own: machine-command@ID.service.

The unit is started over systemd's private socket, so that a test may stop or restart the message
bus below its own feet. Its main process is a shell (a tenth of what an interpreter costs when
emulated), which writes "begun", runs the command and writes its status; a unit that ends without
the status lost its command. When the shell ends, systemd kills what the command left.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from .wire import MAX_PAYLOAD, Kind

RUNTIME = Path("/run/machine")
START_SECONDS = 60.0
# What a command that left processes behind in other units may still write after its end.
DRAIN_SECONDS = 2.0


class Command:
    """The agent's end of a command: two pipes with its output, one with its report."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._id = os.urandom(6).hex()
        self._directory = RUNTIME / self._id
        self._request = request
        self._kinds: dict[int, Kind | None] = {}
        self._report = b""
        self._status: int | None = None
        self._error: str | None = None
        self._deadline: float | None = None

    def start(self) -> None:
        """Start the unit. Raises OSError when systemd refuses."""
        self._directory.mkdir(parents=True, mode=0o700)
        (self._directory / "script").write_text(script(self._request, self._directory))
        for name, kind in (("stdout", Kind.STDOUT), ("stderr", Kind.STDERR), ("report", None)):
            path = self._directory / name
            os.mkfifo(path, 0o600)
            self._kinds[os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)] = kind
        self._deadline = time.monotonic() + START_SECONDS
        _systemctl("start", "--no-block", self._unit)

    def open_fds(self) -> list[int]:
        """Return the file descriptors that still may become readable."""
        return list(self._kinds)

    def read(self, fd: int) -> list[tuple[Kind, bytes]]:
        """Take what a readable descriptor has; return output to pass on."""
        data = os.read(fd, MAX_PAYLOAD)
        kind = self._kinds[fd]
        if not data:
            del self._kinds[fd]
            os.close(fd)
        if kind is None:
            self._take_report(data)
        elif data:
            return [(kind, data)]
        return []

    def patience_milliseconds(self) -> int | None:
        """Return how long to wait for the next thing to read; None is for ever."""
        if self._deadline is None:
            return None
        return max(0, int((self._deadline - time.monotonic()) * 1000) + 1)

    def given_up(self) -> bool:
        """Tell whether a deadline has passed: of the start, or of output after the end."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return False
        if not self._ended():
            self._error = f"{self._unit} did not start in {START_SECONDS:.0f} s"
        return True

    def kill(self) -> None:
        """Kill every process of the unit; its status is then the shell's for SIGKILL."""
        self._status = 128 + signal.SIGKILL
        _systemctl("kill", "--signal=SIGKILL", self._unit)

    def end(self) -> None:
        """Free everything; a unit that may still run is stopped."""
        if not self._ended():
            _systemctl("stop", "--no-block", self._unit)
        for fd in self._kinds:
            os.close(fd)
        self._kinds.clear()
        shutil.rmtree(self._directory)

    def result(self) -> dict[str, Any]:
        """Return the status for DONE: what a shell would show, or an error."""
        if self._status is None:
            return {"error": self._error or "the command's end is not known"}
        return {"status": self._status}

    @property
    def _unit(self) -> str:
        return f"machine-command@{self._id}.service"

    def _ended(self) -> bool:
        return self._status is not None or self._error is not None

    def _take_report(self, data: bytes) -> None:
        self._report += data
        self._deadline = None
        if data:
            return
        self._deadline = time.monotonic() + DRAIN_SECONDS
        if self._status is None:
            self._status, self._error = status_of(self._report)


def script(request: dict[str, Any], directory: Path) -> str:
    """Return the shell script that runs the request's command with exactly its environment."""
    pairs = [f"{name}={value}" for name, value in request["environment"].items()]
    command = shlex.join(["env", "-i", "--", *pairs, *request["argv"]])
    pipes = [shlex.quote(os.fspath(directory / name)) for name in ("stdout", "stderr", "report")]
    return (
        f"exec </dev/null >{pipes[0]} 2>{pipes[1]} 3>{pipes[2]}\n"
        "echo begun >&3\n"
        f"cd {shlex.quote(request['directory'])} && {command} 3>&-\n"
        "echo $? >&3\n"
    )


def status_of(report: bytes) -> tuple[int | None, str | None]:
    """Return the status in a finished report, or what its lack means."""
    lines = report.decode(errors="replace").split("\n")
    if len(lines) == 3 and lines[0] == "begun" and lines[1].isdecimal() and not lines[2]:
        return int(lines[1]), None
    return None, "the command's unit was killed"


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
