# SPDX-License-Identifier: Apache-2.0
"""Files in memory that processes lead to: real ones, made here."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator

import pytest

from sandboxd.supervisor import files
from sandboxd.supervisor.files import Walker, memfd_device
from sandboxd.supervisor.process import Process

MIB = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def me() -> Iterator[Process]:
    process = Process(os.getpid())
    process.look()
    yield process
    process.close()


def walked(walker: Walker, process: Process, now: float = 100.0) -> dict[int, int]:
    found: dict[int, int] = {}
    for _ in walker.walk(process, now, found):
        pass
    return found


def test_a_memfd_counts_while_it_is_open(me: Process) -> None:
    walker = Walker(memfd_device())
    fd = os.memfd_create("x")
    os.write(fd, b"x" * MIB)
    inode = os.fstat(fd).st_ino
    assert walked(walker, me)[inode] == MIB
    os.write(fd, b"x" * MIB)
    assert walked(walker, me)[inode] == 2 * MIB
    os.close(fd)
    assert inode not in walked(walker, me)


def test_a_shared_mapping_that_was_let_go_of_counts(me: Process) -> None:
    if not files.sees_mapped():
        # What such a host misses is named: schemes/supervisor_limits.py.
        return
    walker = Walker(memfd_device())
    before = sum(walked(walker, me).values())
    walker.new_memory += 1
    held = mmap.mmap(-1, 4 * MIB)
    held[:] = b"x" * (4 * MIB)
    held.madvise(mmap.MADV_DONTNEED)
    assert sum(walked(walker, me).values()) - before == 4 * MIB
    held.close()


def test_a_thread_s_own_table_of_descriptors_counts(me: Process) -> None:
    """unshare(2), CLONE_FILES (0x400)."""
    walker = Walker(memfd_device())
    made, end = threading.Event(), threading.Event()
    inodes: list[int] = []

    def hide() -> None:
        assert _libc.unshare(0x400) == 0
        fd = os.memfd_create("hidden")
        os.write(fd, b"x" * MIB)
        inodes.append(os.fstat(fd).st_ino)
        made.set()
        end.wait(20)
        os.close(fd)

    thread = threading.Thread(target=hide)
    thread.start()
    assert made.wait(20)
    me.look()
    try:
        assert walked(walker, me)[inodes[0]] == MIB
    finally:
        end.set()
        thread.join()


def test_a_walk_can_be_left_at_every_entry(me: Process) -> None:
    held = [os.dup(0) for _ in range(200)]
    steps = sum(1 for _ in Walker(memfd_device()).walk(me, 100.0, {}))
    for fd in held:
        os.close(fd)
    assert steps > 200
