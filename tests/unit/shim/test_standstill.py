# SPDX-License-Identifier: Apache-2.0
"""Everybody below a process stands still, whoever is born meanwhile; nobody else does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sandboxd.shim import standstill


@pytest.fixture
def forking() -> Iterator[int]:
    """A process whose child forks children without an end."""
    read_fd, write_fd = os.pipe()
    top = os.fork()
    if top == 0:
        os.setsid()
        if os.fork():
            signal.pause()
        os.write(write_fd, b"x")
        while True:
            if os.fork() == 0:
                os._exit(0)
            os.wait()
    os.read(read_fd, 1)
    yield top
    os.killpg(top, signal.SIGKILL)
    os.waitpid(top, 0)
    os.close(read_fd)
    os.close(write_fd)


def test_all_below_stand_still_and_go_on(forking: int) -> None:
    def each(number: int) -> None:
        for pid in standstill.descendants(forking):
            # A child ends by itself at any moment.
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    for _ in range(20):
        assert standstill.stop(forking, lambda: each(signal.SIGSTOP), timeout_seconds=20)
        family = standstill.descendants(forking)
        assert family
        assert all(standstill._stands_still(pid) for pid in family)
        assert standstill.descendants(forking) == family
        standstill.go_on(forking, lambda: each(signal.SIGCONT))


def test_what_does_not_stop_is_told_in_time(monkeypatch: pytest.MonkeyPatch, forking: int) -> None:
    monkeypatch.setattr(standstill, "_signal", lambda *_: None)
    assert not standstill.stop(forking, lambda: None, timeout_seconds=0.05)


def test_a_number_that_is_somebody_elses_child_now_gets_no_signal(forking: int) -> None:
    [child] = standstill.descendants(forking)[:1]
    standstill._signal(child, os.getpid(), signal.SIGKILL)
    assert child in standstill.descendants(forking)
    standstill._signal(2**22 + 1, os.getpid(), signal.SIGKILL)
