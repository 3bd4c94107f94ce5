# SPDX-License-Identifier: Apache-2.0
"""One supervisor for a runtime directory: the newest, which asks the predecessor to end."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import time
from contextlib import suppress

from sandboxd.osutil.locks import open_lock
from sandboxd.osutil.seqpacket import connect
from sandboxd.protocol.dialogue import ORDERS, Stop

_END_SECONDS = 2.0
_POLL_SECONDS = 0.01
_FLOCK = "hhqqi4x"


def become_the_one(lock_path: str, socket_path: str) -> int:
    """Take the lock, by force after two seconds; return the descriptor, to be kept open."""
    fd = open_lock(lock_path)
    if _try(fd):
        return fd
    with suppress(OSError), connect(socket_path, timeout_seconds=_END_SECONDS) as asking:
        asking.send(ORDERS.encode(Stop()))
    deadline = time.monotonic() + _END_SECONDS
    while not _try(fd):
        if time.monotonic() > deadline:
            _kill_holder(fd)
            fcntl.lockf(fd, fcntl.LOCK_EX)
            return fd
        # A blocking wait for a lock has no deadline, and without waiting there is no event.
        time.sleep(_POLL_SECONDS)
    return fd


def _try(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _kill_holder(fd: int) -> None:
    """Send SIGKILL to the process that holds the lock, by F_GETLK (fcntl_locking(2))."""
    question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
    if kind != fcntl.F_UNLCK and pid > 0:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
