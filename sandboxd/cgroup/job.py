# SPDX-License-Identifier: Apache-2.0
"""The sub-cgroups that a shim makes in a delegated scope: `shim` for itself, `job` for the command.

No cgroup files besides are written by sandboxd; systemd does not look below a delegated unit
(systemd: CGROUP_DELEGATION.md). Limits and counters stay at the scope. The memory controller alone
is handed on, for memory.oom.group: the OOM killer takes `job` as a whole, and never the shim, also
where the host lets no score be lowered (root without CAP_SYS_RESOURCE).
"""

from __future__ import annotations

import os
import select
import time

from sandboxd.osutil import births
from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.files import write_text

JOB = "job"
SHIM = "shim"


def make_beside(scope: str) -> str:
    """Move the calling shim into `shim`, make `job` beside and return its path. Raises OSError."""
    shim, job = os.path.join(scope, SHIM), os.path.join(scope, JOB)
    os.mkdir(shim, 0o755)
    os.mkdir(job, 0o755)
    join(shim)
    # Only a cgroup without processes hands a controller on (cgroup-v2.rst, "No Internal Process
    # Constraint").
    _write(scope, "cgroup.subtree_control", "+memory")
    _write(job, "memory.oom.group", "1")
    return job


def join(job: str) -> None:
    """Move the calling process into the cgroup `job`."""
    _write(job, "cgroup.procs", "0")


def fork_into(job: str) -> int:
    """Fork as os.fork does, with the child born in `job`. Raises OSError, as births.fork_into."""
    fd = os.open(job, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return births.fork_into(fd)
    finally:
        os.close(fd)


def kill(job: str) -> None:
    """SIGKILL every process in `job`, forks in progress included (cgroup.kill, Linux 5.14)."""
    _write(job, "cgroup.kill", "1")


def freeze(job: str, *, timeout_seconds: float) -> bool:
    """Stop every process in `job`; return whether all stood still within the timeout."""
    with closing_fd(os.open(os.path.join(job, "cgroup.events"), os.O_RDONLY | os.O_CLOEXEC)) as fd:
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


def thaw(job: str) -> None:
    """Let the processes in `job` go on."""
    _write(job, "cgroup.freeze", "0")


def _write(directory: str, name: str, text: str) -> None:
    write_text(os.path.join(directory, name), text)
