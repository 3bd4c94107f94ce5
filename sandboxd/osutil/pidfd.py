# SPDX-License-Identifier: Apache-2.0
"""A pidfd of a process that may end at this very moment."""

from __future__ import annotations

import errno
import os


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
