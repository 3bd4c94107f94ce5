# SPDX-License-Identifier: Apache-2.0
"""What the contract's tests look at beside the answers: the kernel's view of a sandbox's uid, and
commands that show from inside what they have."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.conftest import unmet
from tests.harness import Answer, Daemon

T = TypeVar("T")
ENDED = ("EXITED", "SIGNALED", "OOM_KILLED", "TIMED_OUT", "CPU_TIME_EXCEEDED", "OUTPUT_LIMIT",
         "DISK_QUOTA_EXCEEDED", "KILLED", "LOST")  # fmt: skip


def eventually(check: Callable[[], T], seconds: float = 10.0) -> T:
    """The first true value of `check`, polled; its last value fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, f"still {value!r} after {seconds} s"
        time.sleep(0.02)


def executions(sandbox: Any) -> str:
    """The path of a sandbox's executions."""
    return f"/v1/sandboxes/{sandbox['id']}/executions"


def path_of(execution: Any) -> str:
    """The path of one execution."""
    return f"/v1/sandboxes/{execution['sandbox_id']}/executions/{execution['id']}"


def start(daemon: Daemon, sandbox: Any, argv: list[str] | str, **body: Any) -> Any:
    """A running execution."""
    return daemon.execute(sandbox["id"], argv, wait=False, **body)


def output(daemon: Daemon, execution: Any, stream: str = "stdout", offset: int = 0) -> bytes:
    """What it printed so far, from `offset` on."""
    answer = daemon.request("GET", f"{path_of(execution)}/output?stream={stream}&offset={offset}")
    assert answer.status == 200, answer.body
    return answer.body


def printed(daemon: Daemon, execution: Any, text: bytes, seconds: float = 20.0) -> bytes:
    """Its output, once `text` is in it."""

    def look() -> bytes:
        read = output(daemon, execution)
        return read if text in read else b""

    return eventually(look, seconds)


def send_and_leave(
    daemon: Daemon, target: str, body: Any, key: str, arrived: Callable[[], object]
) -> None:
    """POST with an Idempotency-Key, and close the connection unanswered once `arrived` is true."""
    data = json.dumps(body).encode()
    with daemon.connect() as leaving:
        leaving.sendall(
            f"POST {target} HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        # A request that comes before this one was read would be no retry.
        eventually(arrived)


def refused(answer: Answer, status: int, code: str) -> Any:
    """The error of an answer that must be this one, in the form every error has."""
    assert (answer.status, answer.code) == (status, code), answer.body.decode()
    assert set(answer.json) == {"error"}
    error = answer.json["error"]
    assert set(error) == {"code", "message", "hint", "retryable", "details", "request_id"}
    assert error["message"]
    assert error["request_id"] == answer.headers["X-Request-Id"]
    return error


@functools.cache
def _python(environment: str) -> str:
    del environment
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if Path(path).exists():
            return path
    return "python3"


def python(code: str, *arguments: str) -> list[str]:
    """argv of a Python program."""
    return [_python(""), "-IS", "-c", code, *arguments]


def uid_inside(daemon: Daemon, sandbox: Any) -> int:
    """The uid that the sandbox's commands have."""
    return int(daemon.execute(sandbox["id"], ["id", "-u"])["stdout"])


def processes_of(uid: int) -> list[int]:
    """All processes with this uid, zombies too, by the kernel's own list."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if os.stat(entry.path).st_uid == uid:
                    found.append(int(entry.name))
            except FileNotFoundError:
                continue
    return found


def find(argv: str, uid: int | None = None) -> list[int]:
    """Live processes whose command line has `argv` in it, of `uid` if given."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            line = (
                Path(entry.path, "cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
            )
            if argv in line and (uid is None or os.stat(entry.path).st_uid == uid):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def has_unified_systemd() -> bool:
    """Whether systemd runs this host with unified cgroups, and this user may ask it for scopes."""
    if os.geteuid() != 0 or not Path("/run/systemd/system").exists():
        return False
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return False
    command = ["systemd-run", "--scope", "--quiet", "--collect", "--", "true"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def require_level(daemon: Daemon, level: str) -> str:
    """The level, where this host offers it; else the test ends as not met."""
    offered = daemon.ok("GET", "/v1/host")["isolation"]["levels"][level]
    if not offered["available"]:
        unmet(f"isolation {level}: {offered['lacks']}")
    return level


def resident_bytes(daemon: Daemon) -> int:
    """What the daemon's process holds of memory."""
    assert daemon.process is not None
    with open(f"/proc/{daemon.process.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(daemon: Daemon) -> int:
    """How many files the daemon's process has open."""
    assert daemon.process is not None
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
