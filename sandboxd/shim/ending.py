# SPDX-License-Identifier: Apache-2.0
"""Why and when an execution ends. Pure: the shim brings the time and does the deeds."""

from __future__ import annotations


class Ending:
    """The reason and the deadlines of an execution's end.

    The first reason counts; no time passes while the execution is frozen. A stop with a grace time
    begins with SIGTERM; an exit within the grace time counts as the stop's result.
    """

    def __init__(self, *, timeout_seconds: float, grace_seconds: float, now: float) -> None:
        self.reason: str | None = None
        self.kill_code: str | None = None
        self._deadline = now + timeout_seconds
        self._grace_seconds = grace_seconds
        self._stopping_for: str | None = None
        self._term_deadline: float | None = None
        self._frozen_since: float | None = None

    @property
    def is_frozen(self) -> bool:
        """Whether the clock stands still."""
        return self._frozen_since is not None

    def conclude(self, reason: str) -> None:
        """Set the reason: the execution ends now."""
        if self.reason is None:
            self.reason = self._stopping_for or reason if reason == "exited" else reason

    def exceeded_output(self, reason: str) -> None:
        """Replace the reason "exited": the output passed a limit before the exit was seen."""
        if self.reason == "exited":
            self.reason = reason

    def stop(self, reason: str, *, grace_seconds: float, now: float) -> bool:
        """End the execution; return whether to send SIGTERM now. Frozen programs get no grace."""
        self._stopping_for = self._stopping_for or reason
        if grace_seconds <= 0 or self.is_frozen:
            self.conclude(self._stopping_for)
            return False
        if self._term_deadline is not None:
            return False
        self._term_deadline = now + grace_seconds
        return True

    def kill(self, code: str, *, grace_seconds: float, now: float) -> bool:
        """End the execution by an order, with `code`; return whether to send SIGTERM now."""
        self.kill_code = self.kill_code or code
        return self.stop("killed", grace_seconds=grace_seconds, now=now)

    def freeze(self, now: float) -> None:
        """Let the clock stand still."""
        if self._frozen_since is None:
            self._frozen_since = now

    def thaw(self, now: float) -> None:
        """Continue the clock."""
        if self._frozen_since is not None:
            stood_still = now - self._frozen_since
            self._deadline += stood_still
            if self._term_deadline is not None:
                self._term_deadline += stood_still
            self._frozen_since = None

    def wait_seconds(self, now: float) -> float | None:
        """Return the seconds until the next deadline; None = no deadline."""
        if self.is_frozen:
            return None
        due = self._deadline if self._term_deadline is None else self._term_deadline
        return max(0.0, due - now)

    def check(self, now: float) -> bool:
        """Conclude what is due. Whether to send SIGTERM now."""
        if self.is_frozen or self.reason is not None:
            return False
        if self._term_deadline is not None:
            if now >= self._term_deadline:
                self.conclude(str(self._stopping_for))
            return False
        if now >= self._deadline:
            return self.stop("timeout", grace_seconds=self._grace_seconds, now=now)
        return False
