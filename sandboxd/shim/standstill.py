# SPDX-License-Identifier: Apache-2.0
"""Stops and continues an execution's processes so that none sees another stand still.

A shell that waits with WUNTRACED takes a child that was stopped for a job that was (wait(2)). So
parents stand still before their children are stopped, and go on after their children do. Who stands
still forks nobody: below a level that does, all children are known. The SIGCHLD and, with
WCONTINUED, the end of a stop cannot be hidden from a parent.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from sandboxd.osutil.processes import stat_fields

_POLL_SECONDS = 0.0005
# Stopped, traced, ended, or in a wait that no signal interrupts, such as vfork(2)'s: before
# anything of its own goes on, a thread of these takes the SIGSTOP.
_STILL = b"TtZXD"
_GONE = (FileNotFoundError, ProcessLookupError)


def stop(root: int, stop_all: Callable[[], None], *, timeout_seconds: float) -> bool:
    """Stop all below `root`, which goes on; whether all are known to stand still in time.

    root: by its number in the /proc that is mounted here. stop_all: sends SIGSTOP to everybody,
    those who are born meanwhile or lost their parent among them.
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
    """All below `root`, by level."""
    return [pid for level in _levels(root) for pid, _ in level]


def _levels(root: int) -> Iterator[list[tuple[int, int]]]:
    """Pairs of a process and its parent: the children of `root`, then theirs, and so on."""
    seen = {root}
    parents = [root]
    while parents:
        # One that moves to another parent meanwhile is met once.
        level = [pair for pair in _below(parents) if pair[0] not in seen]
        parents = [pid for pid, _ in level]
        seen.update(parents)
        if level:
            yield level


def _below(parents: list[int]) -> Iterator[tuple[int, int]]:
    for parent in parents:
        # One may end between the listing and the read: its children then hang from the shim.
        with suppress(*_GONE):
            for task in os.listdir(f"/proc/{parent}/task"):
                with suppress(*_GONE):
                    with open(f"/proc/{parent}/task/{task}/children", encoding="ascii") as file:
                        words = file.read().split()
                    yield from ((int(word), parent) for word in words)


def _signal(pid: int, parent: int, number: int) -> None:
    """Signal the process of this number while it is a child of `parent`, so never another one that
    got the number since.

    By its directory in /proc, which stands for it as a pidfd does (pidfd_send_signal(2)): the
    number is none of our pid namespace.
    """
    with suppress(*_GONE):
        fd = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if int(_words(f"/proc/self/fd/{fd}/stat")[1]) == parent:
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def _wait_still(pids: list[int], deadline: float) -> None:
    for pid in pids:
        while not _stands_still(pid) and time.monotonic() < deadline:
            # A signal is taken when its process gets a processor, which a busy wait would keep
            # from it.
            time.sleep(_POLL_SECONDS)


def _stands_still(pid: int) -> bool:
    with suppress(*_GONE):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(*_GONE):
                if _words(f"/proc/{pid}/task/{task}/stat")[0] not in _STILL:
                    return False
    return True


def _words(path: str) -> list[bytes]:
    """State and parent, first of a stat file's fields."""
    with open(path, "rb") as file:
        return stat_fields(file.read(), 2)
