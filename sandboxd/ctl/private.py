# SPDX-License-Identifier: Apache-2.0
"""A private daemon for one call.

The daemon's standard input is a pipe whose other end only sandboxctl has: at the end of sandboxctl,
however caused, the daemon reads EOF and stops, with all executions. The daemon sends READY=1 to a
datagram socket of sandboxctl (sd_notify(3)). The daemon runs in a new session, so that a terminal's
^C reaches sandboxctl alone, which then ends the execution in order.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar

from sandboxd.client.calls import SOCKET_VARIABLE, Client
from sandboxd.ctl.exits import say
from sandboxd.ctl.interrupts import Interrupts
from sandboxd.ctl.waiting import waiting
from sandboxd.errors import SandboxdError

_PREFIX = "sandboxd-run-"
_START_SECONDS = 90.0
_STOP_SECONDS = 60.0
_TERMINATE_SECONDS = 10.0
_LOG_LINES = 20
_MAX_LOG_BYTES = 64 << 10
# Maximum length of a runtime directory: the sockets below must fit into sun_path (unix(7)).
_MAX_DIRECTORY_BYTES = 60
# Without the current directory in sys.path.
_DAEMON = [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", "sandboxd"]
_NOT_INHERITED = (
    SOCKET_VARIABLE, "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC",
)  # fmt: skip


class PrivateDaemonFailed(SandboxdError):
    """Raised when the private daemon did not get ready."""

    code: ClassVar[str] = "PRIVATE_DAEMON_FAILED"


@contextmanager
def private_daemon(interrupts: Interrupts) -> Iterator[Client]:
    """Give a client of a daemon that lives as long as the context and leaves no files."""
    with ExitStack() as cleanup:
        state = cleanup.enter_context(_directory(_state_parent(), mode=0o711))
        runtime = cleanup.enter_context(_directory(_runtime_parent(), mode=0o700))
        notifications = cleanup.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        notifications.bind(os.path.join(runtime, "notify"))
        path = os.path.join(runtime, "sandboxd.sock")
        process = _start(path, state, runtime)
        cleanup.callback(_stop, process, interrupts)
        try:
            with waiting("starting a private sandboxd"):
                _wait_ready(process, notifications)
        except PrivateDaemonFailed as exc:
            exc.hint = _log_tail(runtime)
            raise
        yield Client(path)


def _state_parent() -> str | None:
    # Not below /tmp or /var/tmp: a sandbox mounts directories of its own there.
    return "/var/lib" if os.geteuid() == 0 else _short_parent()


def _runtime_parent() -> str | None:
    return "/run" if os.geteuid() == 0 else _short_parent()


def _short_parent() -> str | None:
    """Return None for the default temporary directory, or /tmp if that path is too long."""
    is_short = len(os.fsencode(tempfile.gettempdir())) + 24 <= _MAX_DIRECTORY_BYTES
    return None if is_short else "/tmp"  # noqa: S108 - mkdtemp below makes it safe


@contextmanager
def _directory(parent: str | None, *, mode: int) -> Iterator[str]:
    try:
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    except OSError as exc:
        raise PrivateDaemonFailed(
            f"cannot make a directory for a private daemon below {parent}: {exc.strerror}",
            hint="start sandboxd and name its socket with --socket",
        ) from exc
    try:
        if os.geteuid() == 0:
            os.chmod(path, mode)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if os.path.exists(path):
            say(f"cannot remove {path}: remove it by hand")


def _start(path: str, state: str, runtime: str) -> subprocess.Popen[bytes]:
    environment = {key: os.environ[key] for key in os.environ if key not in _NOT_INHERITED}
    environment["NOTIFY_SOCKET"] = os.path.join(runtime, "notify")
    command = [
        *_DAEMON, "--private", "--socket", path, "--state-dir", state, "--runtime-dir", runtime,
    ]  # fmt: skip
    with open(os.path.join(runtime, "log"), "wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, cwd="/",
            start_new_session=True,
        )  # fmt: skip


def _wait_ready(process: subprocess.Popen[bytes], notifications: socket.socket) -> None:
    """Return on READY=1. Raises PrivateDaemonFailed at the daemon's end or the deadline."""
    pidfd = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(notifications, select.POLLIN)
        poll.register(pidfd, select.POLLIN)
        give_up = time.monotonic() + _START_SECONDS
        while (left := give_up - time.monotonic()) > 0:
            ready = [descriptor for descriptor, _event in poll.poll(left * 1000)]
            if notifications.fileno() in ready:
                if b"READY=1" in notifications.recv(4096).split(b"\n"):
                    return
            elif pidfd in ready:
                code = process.wait()
                raise PrivateDaemonFailed(
                    f"cannot start a private daemon: it ended with {_how(code)}"
                )
    finally:
        os.close(pidfd)
    raise PrivateDaemonFailed(
        f"cannot start a private daemon: not ready after {_START_SECONDS:g} seconds"
    )


def _how(code: int) -> str:
    return f"code {code}" if code >= 0 else signal.Signals(-code).name


def _stop(process: subprocess.Popen[bytes], interrupts: Interrupts) -> None:
    with interrupts.held():
        assert process.stdin is not None
        process.stdin.close()
        for seconds, then in (
            (_STOP_SECONDS, signal.SIGTERM),
            (_TERMINATE_SECONDS, signal.SIGKILL),
        ):
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                say(f"the private daemon did not end within {seconds:g} seconds: {then.name}")
                process.send_signal(then)
            else:
                return
        process.wait()


def _log_tail(runtime: str) -> str | None:
    """Return the last lines of the daemon's log, for the error's hint."""
    try:
        with open(os.path.join(runtime, "log"), "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _MAX_LOG_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError as exc:
        return f"what it said cannot be read: {exc}"
    return "\n    ".join(["the daemon said:", *lines[-_LOG_LINES:]]) if lines else None
