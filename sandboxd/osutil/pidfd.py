# SPDX-License-Identifier: Apache-2.0
"""Processes by pidfd: a process that may end at any moment, and whose pid may be reused."""

from __future__ import annotations

import errno
import os
import select
import signal
from contextlib import suppress


def open_pidfd(pid: int) -> int:
    """Return a file descriptor of the process. Raises ProcessLookupError for an ended process.

    pidfd_open(2) fails with EINVAL (ENOENT in newer kernels) instead of ESRCH for a process that is
    just being reaped: the pid leads no thread group any more (kernel/pid.c).
    """
    try:
        return os.pidfd_open(pid)
    except OSError as exc:
        if exc.errno in {errno.EINVAL, errno.ENOENT}:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from exc
        raise


def has_ended(pidfd: int, *, within_seconds: float = 0.0) -> bool:
    """Whether the process ended: its pidfd is readable (pidfd_open(2)). Waits for the end."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(int(within_seconds * 1000)))


def kill(pidfd: int) -> None:
    """Send SIGKILL to the process, unless ended."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
