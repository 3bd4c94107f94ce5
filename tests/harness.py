# SPDX-License-Identifier: Apache-2.0
"""A real daemon process on a temporary socket, and plain HTTP to it. Knows nothing of sandboxd's
own Python: what it sends and reads is what any client would."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 120.0
STOP_SECONDS = 90.0


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; `json` is None where the body is not JSON."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body) if self.body else None

    @property
    def code(self) -> str | None:
        """The error's code."""
        return self.json["error"]["code"] if self.status >= 400 else None


def connect(path: str, timeout: float | None = 60.0) -> socket.socket:
    """A connection for bytes that are no request of `request`; each wait is bounded."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = connect(self._path, self.timeout)


def request(
    path: str, method: str, target: str, body: Any = None, *, timeout: float = 120.0, **headers: str
) -> Answer:
    """One request on a connection of its own. body: bytes as they are, else JSON."""
    connection = _UnixConnection(path, timeout)
    with contextlib.closing(connection):
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        # Who was answered before all was read may find nobody to send the rest to.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, target, data, sent)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())


@contextmanager
def stream(
    path: str, target: str, *, timeout: float = 60.0, **headers: str
) -> Iterator[http.client.HTTPResponse]:
    """The answer of a GET, to be read as it comes; each read waits `timeout` seconds at most."""
    connection = _UnixConnection(path, timeout)
    with contextlib.closing(connection):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", target, headers=sent)
        yield connection.getresponse()


class Daemon:
    """A daemon with directories of its own. `start`, then requests, then `stop` or `kill`.

    program: the module that is run.
    """

    def __init__(self, program: str = "sandboxd", **environment: str) -> None:
        self.program = program
        # Below /var/lib, since /tmp and /var/tmp are a sandbox's own; /run, since paths are short.
        home = "/var/lib" if os.getuid() == 0 else None
        self.state = Path(tempfile.mkdtemp(prefix="sandboxd-test-", dir=home))
        self.runtime = Path(tempfile.mkdtemp(prefix="sbx-", dir="/run" if home else None))
        self.state.chmod(0o711)
        self.runtime.chmod(0o755)
        self.socket = str(self.runtime / "s.sock")
        self.environment = environment
        self._is_open_to_all = False
        self.process: subprocess.Popen[bytes] | None = None
        self.log = self.state.parent / f"{self.state.name}.log"

    def start(self, *arguments: str, prefix: Sequence[str] = ()) -> None:
        """Start and wait for READY=1, or raise with the daemon's own words.

        prefix: a command that runs the daemon, such as one that takes capabilities away.
        """
        address = str(self.runtime / "notify")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(address)
            environment = {
                **os.environ, "PYTHONPATH": str(ROOT), "NOTIFY_SOCKET": address,
                **self.environment,
            }  # fmt: skip
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [*prefix, sys.executable, "-m", self.program, "--socket", self.socket,
                     "--state-dir", str(self.state), "--runtime-dir", str(self.runtime),
                     *arguments],
                    env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            self._await_ready(notify)
        # Each start makes the socket anew.
        if self._is_open_to_all:
            self.open_to_all()

    def open_to_all(self) -> None:
        """Let every uid of the host connect, over restarts as well."""
        self._is_open_to_all = True
        os.chmod(self.socket, 0o666)  # noqa: S103

    @contextmanager
    def running(self, *, prefix: Sequence[str] = ()) -> Iterator[Daemon]:
        """Start; close at the end."""
        try:
            self.start(prefix=prefix)
            yield self
        finally:
            self.close()

    def _await_ready(self, notify: socket.socket) -> None:
        assert self.process is not None
        pidfd = os.pidfd_open(self.process.pid)
        try:
            deadline = time.monotonic() + START_SECONDS
            while (left := deadline - time.monotonic()) > 0:
                readable, _, _ = select.select([notify.fileno(), pidfd], [], [], left)
                if notify.fileno() in readable:
                    if b"READY=1" in notify.recv(4096):
                        return
                elif pidfd in readable:
                    # Else it is a process that nobody waited for, at whichever test it is freed.
                    self.process.wait(STOP_SECONDS)
                    break
            raise AssertionError(f"the daemon did not get ready:\n{self.log.read_text()}")
        finally:
            os.close(pidfd)

    def connect(self, timeout: float | None = 60.0) -> socket.socket:
        """A connection for bytes of the test's own."""
        return connect(self.socket, timeout)

    def request(self, method: str, target: str, body: Any = None, **options: Any) -> Answer:
        """One request."""
        return request(self.socket, method, target, body, **options)

    def stream(
        self, target: str, **options: Any
    ) -> contextlib.AbstractContextManager[http.client.HTTPResponse]:
        """The answer of a GET, to be read as it comes."""
        return stream(self.socket, target, **options)

    def ok(self, method: str, target: str, body: Any = None, **options: Any) -> Any:
        """The decoded answer of a request that must succeed."""
        answer = self.request(method, target, body, **options)
        assert answer.status < 300, answer.body.decode()
        return answer.json

    def create(self, **body: Any) -> Any:
        """A new sandbox."""
        return self.ok("POST", "/v1/sandboxes", body)

    def execute(self, sandbox: str, argv: list[str] | str, **body: Any) -> Any:
        """A finished execution (a running one with wait=False)."""
        what = {"command": argv} if isinstance(argv, str) else {"argv": argv}
        return self.ok("POST", f"/v1/sandboxes/{sandbox}/executions", {**what, **body})

    def wait(self, execution: Any, seconds: float = 60) -> Any:
        """The execution once it ended."""
        target = f"/v1/sandboxes/{execution['sandbox_id']}/executions/{execution['id']}"
        ended = self.ok("GET", f"{target}?wait={seconds}")
        assert ended["status"] not in ("PENDING", "RUNNING"), ended
        return ended

    def release(self, sandbox: str) -> None:
        """DELETE."""
        answer = self.request("DELETE", f"/v1/sandboxes/{sandbox}")
        assert answer.status == 204, answer.body

    def kill(self) -> None:
        """SIGKILL the daemon alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """SIGTERM and its exit status; work goes on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def _stop_all(self) -> None:
        """What a daemon leaves for the next one, the spawner too."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **self.environment}
        with self.log.open("ab") as log:
            subprocess.run(
                [sys.executable, "-m", self.program, "--stop-all",
                 "--state-dir", str(self.state), "--runtime-dir", str(self.runtime)],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                check=True, timeout=STOP_SECONDS,
            )  # fmt: skip

    def close(self) -> None:
        """Release everything, stop, remove the directories."""
        self.end()
        self.remove()

    def end(self) -> None:
        """Release everything and stop; the directories stay."""
        if self.process is not None and self.process.poll() is None:
            for sandbox in self.ok("GET", "/v1/sandboxes")["sandboxes"]:
                # Records of released ones may go at any moment.
                if sandbox["state"] != "released":
                    self.release(sandbox["id"])
            self.stop()
        self._stop_all()

    def remove(self) -> None:
        """Remove the directories."""
        shutil.rmtree(self.state)
        shutil.rmtree(self.runtime)
        self.log.unlink(missing_ok=True)


@contextmanager
def running_daemon(program: str = "sandboxd", **environment: str) -> Iterator[Daemon]:
    """A started daemon, closed at the end."""
    with Daemon(program, **environment).running() as daemon:
        yield daemon
