# SPDX-License-Identifier: Apache-2.0
"""When a sandbox must be looked at next. Pure."""

from __future__ import annotations

import math

GRID_SECONDS = 0.01
LONGEST_SECONDS = 0.1
_SHORTEST_SECONDS = 0.01
_BUSY_SECONDS = 0.02
_DEBT_SECONDS = 0.002
_CROWD_SECONDS = LONGEST_SECONDS
# Memory comes at least as fast as this; the next look comes when so much may be past the room.
_BYTES_PER_SECOND = 1 << 30
_OVERSHOOT_BYTES = 8 << 20
# Of a core, one sandbox's looks take at most a thirteenth while it runs, and a hundredth while
# nobody in it does: one of very many processes is looked at less often.
DUTY = 12
_QUIET_DUTY = 100
_QUIET_SECONDS = 0.5
# So much less free memory on the host: somebody who was quiet may have it.
FALL_BYTES = 8 << 20


def on_grid(due: float) -> float:
    """The same a little earlier: one wake serves many sandboxes."""
    return math.floor(due / GRID_SECONDS) * GRID_SECONDS


def of_stopped(debt_seconds: float) -> float:
    """Seconds until the next look at one that stands still: it cannot grow."""
    return max(_DEBT_SECONDS, min(LONGEST_SECONDS, debt_seconds))


def of_quiet(period_seconds: float, took_seconds: float) -> float:
    """Seconds until the next look at one in which nobody ran since the last, which said to come
    again after `period_seconds`; sooner if the host's free memory falls."""
    return max(period_seconds, min(_QUIET_SECONDS, took_seconds * _QUIET_DUTY))


def of_running(
    room_bytes: int, bytes_per_second: float, took_seconds: float, *, is_busy: bool, begins: bool
) -> float:
    """Seconds until the next look at one that runs.

    room_bytes: what may come before a limit. bytes_per_second: how fast it came lately.
    took_seconds: the last look. is_busy: it uses what is bounded by time. begins: its command is
    about to start.
    """
    speed = max(_BYTES_PER_SECOND, bytes_per_second * 2)
    period = min(LONGEST_SECONDS, (room_bytes + _OVERSHOOT_BYTES) / speed)
    if is_busy:
        period = min(period, _BUSY_SECONDS)
    if begins:
        period = _SHORTEST_SECONDS
    return max(_SHORTEST_SECONDS, min(_CROWD_SECONDS, took_seconds * DUTY), period)
