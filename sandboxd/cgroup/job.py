# SPDX-License-Identifier: Apache-2.0
"""The sub-cgroup `job` that a shim makes for its command below its own delegated scope.

These are the only cgroup files sandboxd writes; systemd does not look below a delegated unit
(systemd: CGROUP_DELEGATION.md). No controller is enabled in it: limits stay at the scope.
"""

from __future__ import annotations

import errno
import os
import select
import time

from sandboxd.cgroup import counters

NAME = "job"


def make(scope: str) -> str:
    """Make the directory and return its path."""
    path = os.path.join(scope, NAME)
    os.mkdir(path, 0o755)
    return path


def join(job: str) -> None:
    """Move the calling process into it."""
    _write(job, "cgroup.procs", "0")


def kill(job: str) -> None:
    """SIGKILL every process in it, forks in progress included (cgroup.kill, Linux 5.14)."""
    _write(job, "cgroup.kill", "1")


def set_oom_group(scope: str) -> None:
    """Make the OOM killer take the whole scope but the processes at oom_score_adj -1000."""
    _write(scope, "memory.oom.group", "1")


def keep_oom_group(scope: str) -> None:
    """Set it again where systemd 257 wrote OOMPolicy's own value: with any change of the scope's
    properties, and with the first start beside it after a daemon-reload."""
    if counters.read_number(scope, "memory.oom.group") != 0:
        return
    try:
        set_oom_group(scope)
    except OSError as exc:
        # kernfs: the scope ended before or since the open.
        if exc.errno not in {errno.ENOENT, errno.ENODEV}:
            raise


def freeze(job: str, *, timeout_seconds: float) -> bool:
    """Stop every process in it; whether all stood still within the timeout."""
    fd = os.open(os.path.join(job, "cgroup.events"), os.O_RDONLY | os.O_CLOEXEC)
    try:
        poller = select.poll()
        poller.register(fd, select.POLLPRI)
        _write(job, "cgroup.freeze", "1")
        deadline = time.monotonic() + timeout_seconds
        while b"frozen 1" not in os.pread(fd, 256, 0):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            poller.poll(max(1, int(left * 1000)))
        return True
    finally:
        os.close(fd)


def thaw(job: str) -> None:
    """Let the processes go on."""
    _write(job, "cgroup.freeze", "0")


def _write(directory: str, name: str, text: str) -> None:
    with open(os.path.join(directory, name), "w", encoding="ascii") as file:
        file.write(text)
