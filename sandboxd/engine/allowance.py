# SPDX-License-Identifier: Apache-2.0
"""Limits the audit lines per owner, so that a busy owner cannot push out lines of the rest.

journald counts the lines of a service for all callers together, and drops lines beyond
RateLimitBurst= (journald.conf(5)).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sandboxd.engine.ports.host import Clock

WINDOW_SECONDS = 30.0
MOST_LINES = 2000


class LineGrant(enum.Enum):
    """Whether to write a line: yes, no, or yes as the last line of the window."""

    YES = enum.auto()
    LAST = enum.auto()
    NO = enum.auto()


@dataclass(slots=True)
class _Window:
    ends: float
    lines: int = 0


class Allowance:
    """Counts the lines of each owner in windows of WINDOW_SECONDS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[int, _Window] = {}

    def take(self, owner_uid: int) -> LineGrant:
        """Count a line of an owner; return whether to write the line."""
        now = self._clock.monotonic()
        window = self._windows.get(owner_uid)
        if window is None or window.ends <= now:
            self._windows = {uid: one for uid, one in self._windows.items() if one.ends > now}
            window = self._windows[owner_uid] = _Window(now + WINDOW_SECONDS)
        window.lines += 1
        if window.lines < MOST_LINES:
            return LineGrant.YES
        return LineGrant.LAST if window.lines == MOST_LINES else LineGrant.NO
