# SPDX-License-Identifier: Apache-2.0
"""How many audit lines each owner may cause: who makes thousands must not push out the others'.

journald counts a service's lines of all callers together, and beyond RateLimitBurst= drops whatever
comes next (journald.conf(5)).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sandboxd.engine.ports.host import Clock

WINDOW_SECONDS = 30.0
MOST_LINES = 2000


class Told(enum.Enum):
    """Whether a line is written: yes, no, or as the last one before there are none."""

    YES = enum.auto()
    LAST = enum.auto()
    NO = enum.auto()


@dataclass(slots=True)
class _Window:
    ends: float
    lines: int = 0


class Allowance:
    """Counts lines of each owner in windows of 30 seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[int, _Window] = {}

    def take(self, owner_uid: int) -> Told:
        """Count one more line of an owner's."""
        now = self._clock.monotonic()
        window = self._windows.get(owner_uid)
        if window is None or window.ends <= now:
            self._windows = {uid: one for uid, one in self._windows.items() if one.ends > now}
            window = self._windows[owner_uid] = _Window(now + WINDOW_SECONDS)
        window.lines += 1
        if window.lines < MOST_LINES:
            return Told.YES
        return Told.LAST if window.lines == MOST_LINES else Told.NO
