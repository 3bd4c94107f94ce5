# SPDX-License-Identifier: Apache-2.0
"""Stop and continue processes so that no parent sees a child stopped.

A shell that waits with WUNTRACED takes a child stopped by the supervisor for a job stopped by the
user (wait(2)). So parents are stopped before their children, and continued after their children.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping

from sandboxd.supervisor.process import Process

# With more parents no user watches a terminal, and the order would take time from all sandboxes.
_MOST_PARENTS = 64
_MOST_CONTINUED = 256
_STAND_SECONDS = 0.005
_POLL_SECONDS = 0.0001


def by_depth(members: Mapping[int, Process]) -> list[list[Process]]:
    """Group processes by depth: first those without a parent among `members`."""
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
    """Send SIGSTOP to all parents, level by level, for at most five milliseconds.

    A level is signalled once the level above is stopped. Processes without children are left to the
    caller.
    """
    waiting = {process.parent for process in members.values()}
    levels = [[p for p in level if p.pid in waiting] for level in by_depth(members)]
    if sum(map(len, levels)) > _MOST_PARENTS:
        return
    deadline = time.monotonic() + _STAND_SECONDS
    for level in levels:
        for process in level:
            process.signal(signal.SIGSTOP)
        while time.monotonic() < deadline and not all(p.stands_still() for p in level):
            # A signal is taken when the process gets a processor, which a busy wait of the
            # real-time supervisor could occupy.
            time.sleep(_POLL_SECONDS)


def continue_children(members: Mapping[int, Process]) -> None:
    """Send SIGCONT to all, the deepest first, so that children run before their parents."""
    if len(members) <= _MOST_CONTINUED:
        for level in reversed(by_depth(members)):
            for process in level:
                process.signal(signal.SIGCONT)
