# SPDX-License-Identifier: Apache-2.0
"""Stops and continues processes so that none sees another stand still.

A shell that waits with WUNTRACED takes a child that was stopped for a job that was (wait(2)). So
parents stand still before their children are stopped, and go on after their children do.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping

from sandboxd.supervisor.process import Process

# Of more than these nobody looks at a terminal, and the time is the others'.
_MOST_PARENTS = 64
_MOST_CONTINUED = 256
_STAND_SECONDS = 0.005
_POLL_SECONDS = 0.0001


def by_depth(members: Mapping[int, Process]) -> list[list[Process]]:
    """Processes without a parent among them, their children, and so on."""
    depths: dict[int, int] = {}
    for pid in members:
        path = []
        above = pid
        while above in members and above not in depths and above not in path:
            path.append(above)
            above = members[above].parent
        depth = depths.get(above, -1)
        for one in reversed(path):
            depth += 1
            depths[one] = depth
    levels: list[list[Process]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for pid, depth in depths.items():
        levels[depth].append(members[pid])
    return levels


def stop_parents(members: Mapping[int, Process]) -> None:
    """SIGSTOP to those who have children, each level once the one above stands still; waits for
    some milliseconds at most. The others are the caller's to stop."""
    waiting = {process.parent for process in members.values()}
    levels = [[p for p in level if p.pid in waiting] for level in by_depth(members)]
    if sum(map(len, levels)) > _MOST_PARENTS:
        return
    deadline = time.monotonic() + _STAND_SECONDS
    for level in levels:
        for process in level:
            process.signal(signal.SIGSTOP)
        while time.monotonic() < deadline and not all(p.stands_still() for p in level):
            # A signal is taken when its process gets a processor, which a busy wait of ours, who
            # go before everybody, could keep from it.
            time.sleep(_POLL_SECONDS)


def continue_children(members: Mapping[int, Process]) -> None:
    """SIGCONT to all, the lowest first; a parent's last children before it."""
    if len(members) <= _MOST_CONTINUED:
        for level in reversed(by_depth(members)):
            for process in level:
                process.signal(signal.SIGCONT)
