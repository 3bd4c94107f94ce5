# SPDX-License-Identifier: Apache-2.0
"""ENOMEM in a full cgroup passes; nothing else is tried again."""

from __future__ import annotations

import errno
import os

import pytest

from sandboxd.shim import patience
from sandboxd.shim.patience import patiently


def failing(number: int, times: int) -> list[OSError]:
    return [OSError(number, os.strerror(number)) for _ in range(times)]


def call(left: list[OSError]) -> str:
    if left:
        raise left.pop()
    return "done"


def test_no_memory_is_waited_out() -> None:
    left = failing(errno.ENOMEM, 3)
    assert patiently(lambda: call(left)) == "done"
    assert not left


def test_other_errors_are_told_at_once() -> None:
    left = failing(errno.ENOSPC, 2)
    with pytest.raises(OSError, match="No space"):
        patiently(lambda: call(left))
    assert len(left) == 1


def test_the_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_SECONDS", 0.02)
    with pytest.raises(OSError, match="allocate memory"):
        patiently(lambda: call(failing(errno.ENOMEM, 1)))
