# SPDX-License-Identifier: Apache-2.0
"""The most memory a command had, where no cgroup counts it: looked at in its first moments, since
many commands end before a supervisor looks twice, and a process that has ended tells it no more.

Each look costs about 10 us; their pauses double.
"""

from __future__ import annotations

from sandboxd.isolation import verify

_FIRST_SECONDS = 0.002
_LAST_SECONDS = 0.13


class PeakSampler:
    """pid: the command's main process in the mounted /proc. `peak_bytes`: since its exec, None as
    long as nobody looked."""

    def __init__(self, pid: int, now: float) -> None:
        self.peak_bytes = verify.peak_bytes(pid)
        self._pid = pid
        self._pause = _FIRST_SECONDS
        self._due = now + self._pause

    def wait_seconds(self) -> float | None:
        """The pause until the next look; None when a supervisor's suffice."""
        return self._pause if self._pause <= _LAST_SECONDS else None

    def look(self, now: float) -> None:
        """If one is due."""
        if now < self._due or self._pause > _LAST_SECONDS:
            return
        self._pause *= 2
        self._due = now + self._pause
        # Its number is its own until it is reaped, and then there is no next look.
        found = verify.peak_bytes(self._pid)
        if found is not None:
            self.peak_bytes = max(found, self.peak_bytes or 0)
