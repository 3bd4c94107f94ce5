# SPDX-License-Identifier: Apache-2.0
"""Signals of this process: a pipe that tells of a signal, and dispositions for a new program."""

from __future__ import annotations

import os
import signal


def wake_on_signals(*numbers: int) -> int:
    """Return a pipe that becomes readable when one of the signals arrives.

    SIGTERM, SIGINT and SIGHUP are ignored from now on.
    """
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return read_fd


def reset_signals() -> None:
    """Give every signal its default action, and block none: for a child before its exec."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
