# SPDX-License-Identifier: Apache-2.0
"""Ends a shim and all below where there is no pid namespace, in which one kill would do.

A subreaper's descendants stay below the subreaper (prctl(2)), and go to others with the
subreaper's end: a stopped shim keeps all of them in sight until none is left.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress

from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.pidfd import has_ended, kill, open_pidfd
from sandboxd.osutil.processes import GONE, children, parent, process_start_time

_PASS_SECONDS = 0.005


def end_with_descendants(pid: int, pidfd: int, *, timeout_seconds: float) -> bool:
    """Send SIGKILL to all descendants, then to the process; False if a descendant still lives.

    A process with a living descendant is left stopped, for another try. The descriptor is closed.
    """
    deadline = time.monotonic() + timeout_seconds
    with closing_fd(pidfd):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        # A process between two parents is in neither's list, but found by the next pass.
        passes_without = 0
        while passes_without < 2:
            started = _start_time(pid)
            if has_ended(pidfd):
                return True
            passes_without = 0 if _kill_below(pid, started) else passes_without + 1
            if passes_without == 0:
                if time.monotonic() > deadline:
                    return False
                time.sleep(_PASS_SECONDS)
        kill(pidfd)
    return True


def _kill_below(pid: int, started: int | None) -> bool:
    """Send SIGKILL to all descendants of a process, parents first; whether any was alive.

    started: the process's start time, which tells a reused pid apart.
    """
    parents = {pid: started}
    any_alive = False
    while parents:
        above, started = parents.popitem()
        below = list(children(above))
        if _start_time(above) != started:
            continue
        for child in below:
            with suppress(ProcessLookupError):
                with closing_fd(open_pidfd(child)) as fd:
                    if parent(child) == above and not has_ended(fd):
                        parents[child] = _start_time(child)
                        kill(fd)
                        any_alive = True
    return any_alive


def _start_time(pid: int) -> int | None:
    with suppress(*GONE):
        return process_start_time(pid)
    return None
