# SPDX-License-Identifier: Apache-2.0
"""Sample the peak memory of a command's first moments, where no cgroup measures the peak.

Many commands end before a supervisor looks twice, and an ended process has no VmHWM. A sample costs
about 10 us; the pauses double.
"""

from __future__ import annotations

from sandboxd.isolation import verify

_FIRST_SECONDS = 0.002
_LAST_SECONDS = 0.13


class PeakSampler:
    """Samples of process `pid` (in the mounted /proc); the peak since the exec is None at first."""

    def __init__(self, pid: int, now: float) -> None:
        self.peak_bytes = verify.peak_bytes(pid)
        self._pid = pid
        self._pause = _FIRST_SECONDS
        self._due = now + self._pause

    def wait_seconds(self) -> float | None:
        """Return the pause until the next sample; None once a supervisor's looks suffice."""
        return self._pause if self._pause <= _LAST_SECONDS else None

    def look(self, now: float) -> None:
        """Take a sample if due."""
        if now < self._due or self._pause > _LAST_SECONDS:
            return
        self._pause *= 2
        self._due = now + self._pause
        # The pid is not reused before the shim reaps the process and stops sampling.
        found = verify.peak_bytes(self._pid)
        if found is not None:
            self.peak_bytes = max(found, self.peak_bytes or 0)
