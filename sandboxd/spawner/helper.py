# SPDX-License-Identifier: Apache-2.0
"""A program that the spawner keeps running: the supervisor, where no service manager does."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.pidfd import has_ended

_HASTY_SECONDS = 0.3
_END_SECONDS = 2.0


class Helper:
    """A program to keep running: restarted when it ends, after a pause if the end came at once."""

    RETRY_MILLISECONDS = 300

    def __init__(self) -> None:
        self.pid = 0
        self._argv: list[str] = []
        self._started_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the program should run but does not."""
        return bool(self._argv) and self.pid == 0

    def run(self, argv: list[str]) -> None:
        """Keep `argv` running from now on."""
        self._argv = argv
        self.keep_alive()

    def keep_alive(self) -> None:
        """Start the program if due, unless the last start was less than 0.3 seconds ago."""
        if not self.is_due or time.monotonic() - self._started_at < _HASTY_SECONDS:
            return
        self._started_at = time.monotonic()
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
        defaults = [signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
        # EAGAIN, ENOMEM: tried again.
        with suppress(OSError):
            self.pid = os.posix_spawn(
                self._argv[0], self._argv, {"PATH": os.defpath},
                file_actions=null, setsid=True, setsigdef=defaults,
            )  # fmt: skip

    def ended(self, pid: int) -> None:
        """Note that a child was reaped."""
        if pid == self.pid:
            self.pid = 0

    def stop(self) -> None:
        """Send SIGTERM and wait at most two seconds for the end."""
        if self.pid:
            with closing_fd(os.pidfd_open(self.pid)) as pidfd:
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
                has_ended(pidfd, within_seconds=_END_SECONDS)
