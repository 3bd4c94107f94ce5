# SPDX-License-Identifier: Apache-2.0
"""Fields of stat files behind any name."""

from __future__ import annotations

import os

import pytest

from sandboxd.osutil.processes import process_start_time, stat_fields


@pytest.mark.parametrize("name", [b"sh", b"a) R 1", b"(", b") ) ", b""])
def test_the_name_may_hold_anything(name: bytes) -> None:
    assert stat_fields(b"7 (" + name + b") S 3 5 0\n") == [b"S", b"3", b"5", b"0"]
    assert stat_fields(b"7 (" + name + b") S 3 5 0\n", 2)[:2] == [b"S", b"3"]


def test_a_child_starts_no_earlier_than_its_parent() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        assert process_start_time(pid) >= process_start_time(os.getpid()) > 0
    finally:
        os.waitpid(pid, 0)
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        process_start_time(pid)
