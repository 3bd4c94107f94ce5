# SPDX-License-Identifier: Apache-2.0
"""Signals: a pipe that tells of them, and a clean slate for a new program."""

from __future__ import annotations

import os
import select
import signal

from sandboxd.osutil.signals import reset_signals, wake_on_signals


def in_child(work: object) -> int:
    """The exit code of a child that does the work: dispositions are the process's."""
    assert callable(work)
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_signal_makes_the_pipe_readable() -> None:
    def work() -> bool:
        fd = wake_on_signals(signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        select.select([fd], [], [], 10.0)
        return os.read(fd, 10) == bytes([signal.SIGUSR1])

    assert in_child(work) == 0


def test_a_reset_leaves_nothing() -> None:
    def work() -> bool:
        wake_on_signals(signal.SIGUSR1)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        reset_signals()
        actions = {signal.getsignal(number) for number in signal.valid_signals()}
        return actions == {signal.SIG_DFL} and not signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert in_child(work) == 0
