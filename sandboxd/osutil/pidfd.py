# SPDX-License-Identifier: Apache-2.0
"""A pidfd of a process that may end at this very moment."""

from __future__ import annotations

import errno
import os


def open_pidfd(pid: int) -> int:
    """A file descriptor of the process; ProcessLookupError when there is none any more.

    pidfd_open(2) tells EINVAL (ENOENT in newer kernels) instead of ESRCH for a process whose
    parent is just waiting for it: its number leads no group of threads any more (kernel/pid.c).
    """
    try:
        return os.pidfd_open(pid)
    except OSError as exc:
        if exc.errno in {errno.EINVAL, errno.ENOENT}:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from exc
        raise
