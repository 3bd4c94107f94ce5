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
# The looks of one sandbox take at most a thirteenth of a core while the sandbox runs, and a
# hundredth while all processes sleep: a sandbox of very many processes is looked at less often.
DUTY = 12
_QUIET_DUTY = 100
_QUIET_SECONDS = 0.5
# If the host's free memory falls by so much, a quiet sandbox may have taken the memory.
FALL_BYTES = 8 << 20


def on_grid(due: float) -> float:
    """Round `due` down to a common grid, so that a single wake serves many sandboxes."""
    return math.floor(due / GRID_SECONDS) * GRID_SECONDS


def of_stopped(debt_seconds: float) -> float:
    """Return the seconds until the next look at a stopped sandbox, which cannot grow."""
    return max(_DEBT_SECONDS, min(LONGEST_SECONDS, debt_seconds))


def of_quiet(period_seconds: float, took_seconds: float) -> float:
    """Return the seconds until the next look at a sandbox where no process ran since the last look.

    period_seconds: the pause chosen by that look. The look comes sooner if the host's free memory
    falls.
    """
    return max(period_seconds, min(_QUIET_SECONDS, took_seconds * _QUIET_DUTY))


def of_running(
    room_bytes: int, bytes_per_second: float, took_seconds: float, *, is_busy: bool, begins: bool
) -> float:
    """Return the seconds until the next look at a running sandbox.

    room_bytes: growth left before a limit. bytes_per_second: recent growth. took_seconds: duration
    of the last look. is_busy: whether a resource limited per time is used. begins: whether the
    command of an execution is about to start.
    """
    speed = max(_BYTES_PER_SECOND, bytes_per_second * 2)
    period = min(LONGEST_SECONDS, (room_bytes + _OVERSHOOT_BYTES) / speed)
    if is_busy:
        period = min(period, _BUSY_SECONDS)
    if begins:
        period = _SHORTEST_SECONDS
    return max(_SHORTEST_SECONDS, min(_CROWD_SECONDS, took_seconds * DUTY), period)
