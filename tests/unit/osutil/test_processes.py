# SPDX-License-Identifier: Apache-2.0
"""Fields of stat files behind any name; who there is, whose, and below whom."""

from __future__ import annotations

import os
import threading

import pytest

from sandboxd.osutil.processes import (
    children,
    own_pid,
    owner,
    owners,
    parent,
    pids,
    process_start_time,
    stat_fields,
    threads,
)


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


def test_a_child_is_its_parent_s_and_its_owner_s() -> None:
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write_fd)
        os.read(read_fd, 1)
        os._exit(0)
    try:
        assert pid in children(own_pid())
        assert parent(pid) == own_pid()
        assert owner(pid) == os.geteuid() == dict(owners())[pid]
        assert pid in pids()
    finally:
        os.close(write_fd)
        os.close(read_fd)
        os.waitpid(pid, 0)
    assert [*children(pid)] == []
    assert parent(pid) == 0
    assert owner(pid) is None


def test_every_thread_is_told() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert {os.getpid(), thread.native_id} <= {*threads(os.getpid())}
    finally:
        done.set()
        thread.join()
