# SPDX-License-Identifier: Apache-2.0
"""Messages to the service manager, and sockets from it: sd_notify(3), sd_listen_fds(3).

By pystemd where installed, else by the standard library, so that a checkout runs on hosts without
pystemd. Without a manager every call does nothing.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol

from sandboxd.osutil.readiness import notify

_FIRST_FD = 3


class Notifier(Protocol):
    """Messages to the service manager."""

    def send(self, **fields: str) -> None:
        """Send assignments such as READY="1"; the manager's absence is no error."""

    def watchdog_seconds(self) -> float | None:
        """Return the seconds after which the manager gives up; None without a watchdog."""

    def listen_fds(self) -> int:
        """Return how many sockets were handed over, from descriptor 3 on."""


class PlainNotifier:
    """By the standard library. The addresses are read once, from the given environment."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._environment = environment

    def send(self, **fields: str) -> None:
        if not self._address:
            return
        text = "\n".join(f"{key}={value}" for key, value in fields.items())
        with suppress(OSError):
            notify(self._address, text.encode())

    def watchdog_seconds(self) -> float | None:
        if self._environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        usec = self._environment.get("WATCHDOG_USEC", "")
        return int(usec) / 1e6 if usec.isdecimal() and int(usec) > 0 else None

    def listen_fds(self) -> int:
        if self._environment.get("LISTEN_PID", "") != str(os.getpid()):
            return 0
        count = self._environment.get("LISTEN_FDS", "")
        return int(count) if count.isdecimal() else 0


class PystemdNotifier:
    """By pystemd.daemon; libsystemd reads the environment at each call."""

    def __init__(self, daemon: Any) -> None:
        self._daemon = daemon

    def send(self, **fields: str) -> None:
        self._daemon.notify(False, **fields)

    def watchdog_seconds(self) -> float | None:
        usec = int(self._daemon.watchdog_enabled(False))
        return usec / 1e6 if usec > 0 else None

    def listen_fds(self) -> int:
        return int(self._daemon.listen_fds(False))


def choose() -> Notifier:
    """Return pystemd's notifier where pystemd can be imported, else the plain one."""
    try:
        return PystemdNotifier(import_module("pystemd.daemon"))
    except ImportError:
        return PlainNotifier(dict(os.environ))


def listen_sockets(notifier: Notifier) -> list[socket.socket]:
    """Return the sockets handed over, as sockets that no child inherits."""
    count = notifier.listen_fds()
    sockets = [socket.socket(fileno=_FIRST_FD + offset) for offset in range(count)]
    for handed in sockets:
        os.set_inheritable(handed.fileno(), False)
        handed.setblocking(False)
    return sockets
