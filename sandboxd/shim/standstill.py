# SPDX-License-Identifier: Apache-2.0
"""Stop and continue an execution's processes so that no parent sees a child stopped.

A shell that waits with WUNTRACED takes a child stopped by the shim for a job stopped by the user
(wait(2)). So parents are stopped before their children, and continued after their children. A
stopped process forks no more: below a stopped level all children are known. SIGCHLD and, with
WCONTINUED, the end of a stop cannot be hidden from a parent.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from sandboxd.osutil.descriptors import closing_fd, open_directory, path_of
from sandboxd.osutil.processes import GONE, children, stat_fields, threads

_POLL_SECONDS = 0.0005
# Stopped, traced, ended, or in an uninterruptible wait such as vfork(2)'s: a thread in these states
# takes the SIGSTOP before any more user code.
_STILL = b"TtZXD"


def stop(root: int, stop_all: Callable[[], None], *, timeout_seconds: float) -> bool:
    """Stop all processes below `root`, except `root`; return whether all were seen stopped in time.

    root: a pid of the mounted /proc. stop_all: sends SIGSTOP to every process, including processes
    born meanwhile and orphans.
    """
    deadline = time.monotonic() + timeout_seconds
    parents = [root]
    while parents and time.monotonic() < deadline:
        level = list(_below(parents))
        for pid, parent in level:
            _signal(pid, parent, signal.SIGSTOP)
        _wait_still([pid for pid, _ in level], deadline)
        parents = [pid for pid, _ in level]
    while True:
        stop_all()
        if all(_stands_still(pid) for level in _levels(root) for pid, _ in level):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)


def go_on(root: int, continue_all: Callable[[], None]) -> None:
    """Let all below `root` go on, the lowest first. continue_all: sends SIGCONT to everybody."""
    for level in reversed(list(_levels(root))):
        for pid, parent in level:
            _signal(pid, parent, signal.SIGCONT)
    continue_all()


def descendants(root: int) -> list[int]:
    """Return all processes below `root`, by level."""
    return [pid for level in _levels(root) for pid, _ in level]


def _levels(root: int) -> Iterator[list[tuple[int, int]]]:
    """Yield (pid, parent) pairs, level by level: the children of `root`, then the grandchildren."""
    seen = {root}
    parents = [root]
    while parents:
        # A process that moves to a new parent meanwhile is met once.
        level = [pair for pair in _below(parents) if pair[0] not in seen]
        parents = [pid for pid, _ in level]
        seen.update(parents)
        if level:
            yield level


def _below(parents: list[int]) -> Iterator[tuple[int, int]]:
    for parent in parents:
        # A process may end between the listing and the read: the children then hang from the shim.
        yield from ((pid, parent) for pid in children(parent))


def _signal(pid: int, parent: int, number: int) -> None:
    """Signal the process if still a child of `parent`: a reused pid is never signalled.

    The directory in /proc serves as a pidfd (pidfd_send_signal(2)), since the pid is none of this
    process's pid namespace.
    """
    with suppress(*GONE):
        with closing_fd(open_directory(f"/proc/{pid}")) as fd:
            if int(_words(f"{path_of(fd)}/stat")[1]) == parent:
                signal.pidfd_send_signal(fd, number)


def _wait_still(pids: list[int], deadline: float) -> None:
    for pid in pids:
        while not _stands_still(pid) and time.monotonic() < deadline:
            # A signal is taken when the process gets a processor, which a busy wait would occupy.
            time.sleep(_POLL_SECONDS)


def _stands_still(pid: int) -> bool:
    with suppress(*GONE):
        for thread in threads(pid):
            with suppress(*GONE):
                if _words(f"/proc/{pid}/task/{thread}/stat")[0] not in _STILL:
                    return False
    return True


def _words(path: str) -> list[bytes]:
    """Return state and parent, the first of a stat file's fields."""
    with open(path, "rb") as file:
        return stat_fields(file.read(), 2)
