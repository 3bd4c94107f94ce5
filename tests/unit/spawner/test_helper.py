# SPDX-License-Identifier: Apache-2.0
"""The program that the spawner keeps running."""

from __future__ import annotations

import os
import signal

import pytest

from sandboxd.spawner.helper import Helper

SLEEP = ["/bin/sleep", "60"]


def end(helper: Helper) -> int:
    """SIGKILL it, reap it, and tell."""
    pid = helper.pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    helper.ended(pid)
    return pid


def test_it_is_started_once() -> None:
    helper = Helper()
    helper.keep_alive()
    assert helper.pid == 0
    helper.run(SLEEP)
    pid = helper.pid
    helper.run(SLEEP)
    assert helper.pid == pid
    end(helper)


def test_one_that_ends_at_once_is_not_started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = Helper()
    now = [100.0]
    monkeypatch.setattr("sandboxd.spawner.helper.time.monotonic", lambda: now[0])
    helper.run(SLEEP)
    first = end(helper)
    helper.keep_alive()
    assert helper.is_due
    now[0] += 0.4
    helper.keep_alive()
    assert helper.pid not in {0, first}
    now[0] += 5
    end(helper)
    helper.keep_alive()
    assert helper.pid
    end(helper)


def test_it_ends_by_sigterm() -> None:
    helper = Helper()
    helper.run(SLEEP)
    helper.stop()
    _, status = os.waitpid(helper.pid, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
