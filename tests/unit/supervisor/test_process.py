# SPDX-License-Identifier: Apache-2.0
"""Processes as /proc shows them: real ones, forked here."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from sandboxd.supervisor.census import Census, owner, parent
from sandboxd.supervisor.group import Group, measure, sums
from sandboxd.supervisor.process import Process, is_group_leader, parse_pairs


@contextmanager
def child(work: Callable[[], None]) -> Iterator[int]:
    """A forked child that does its work and then waits to be killed."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        work()
        os.write(write_fd, b"x")
        signal.pause()
        os._exit(0)
    os.close(write_fd)
    try:
        os.read(read_fd, 1)
        yield pid
    finally:
        os.close(read_fd)
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def burn(seconds: float) -> Callable[[], None]:
    def work() -> None:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    return work


def hold(size: int) -> Callable[[], None]:
    def work() -> None:
        held = bytearray(size)
        held[::4096] = b"x" * len(held[::4096])
        globals()["_held"] = held

    return work


def test_pairs_are_read_with_and_without_units() -> None:
    text = b"Pss:   12 kB\nread_bytes: 5\nno number: x\nempty:\nShmem: 7 kB\n"
    assert parse_pairs(text) == {b"Pss": 12, b"read_bytes": 5, b"Shmem": 7}


def test_times_and_memory_of_a_process() -> None:
    with child(burn(0.2)) as pid:
        process = Process(pid)
        assert process.look()
        assert not process.look()
        process.look_at_memory()
        assert process.own >= 18
        assert process.parent == os.getpid()
        assert process.resident_bytes > process.anonymous_bytes > 0
        process.close()


def test_a_process_that_ended_is_nobody_else() -> None:
    with child(lambda: None) as pid:
        process = Process(pid)
        process.look()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with pytest.raises(ProcessLookupError):
            process.look()
        process.signal(signal.SIGTERM)
        process.close()


def test_what_was_waited_for_counts_once() -> None:
    group = Group(reads_io=False)
    me = Process(os.getpid())
    group.look(me, parent_too=True)
    with child(burn(0.3)) as pid:
        group.members[pid] = Process(pid)
        seen = group.look(me).cpu_seconds
        assert seen >= 0.28
    seen += group.look(me).cpu_seconds
    assert group.members == {}
    assert seen <= 0.45
    me.close()


def test_shared_memory_of_a_fork_is_measured_once() -> None:
    hold(32 << 20)()
    try:
        with child(lambda: None) as one, child(lambda: None) as two:
            group = Group(reads_io=False)
            for pid in (one, two):
                group.members[pid] = Process(pid)
            group.look()
            group.look_at_memory()
            found = sums([group], 0)
            assert found.resident_bytes > 64 << 20
            exact = measure([group], 0, 1 << 40)
            assert exact < found.resident_bytes - (32 << 20)
            group.close()
    finally:
        del globals()["_held"]


def test_a_census_finds_who_is_new() -> None:
    census = Census()
    assert os.getpid() in census.newcomers()
    with child(lambda: None) as pid:
        assert pid in census.newcomers()
        assert owner(pid) == os.geteuid()
        assert parent(pid) == os.getpid()
        assert is_group_leader(pid)
    assert owner(pid) is None
    assert parent(pid) == 0
    assert not is_group_leader(pid)
