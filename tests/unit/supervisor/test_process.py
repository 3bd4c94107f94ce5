# SPDX-License-Identifier: Apache-2.0
"""Processes as /proc shows them: real ones, forked here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress

import pytest

from sandboxd.osutil.labels import parse_numbers
from sandboxd.osutil.processes import owner, parent
from sandboxd.supervisor.census import Census
from sandboxd.supervisor.group import Group, certain, measure, sums
from sandboxd.supervisor.process import (
    Process,
    is_group_leader,
    proportional,
    without_files,
)


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


def is_asleep(pid: int) -> bool:
    """Whether it waits for a signal."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"


def whole(steps: Generator[None, None, int]) -> int:
    """The result of long work, done at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return int(end.value)


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
    assert parse_numbers(text) == {b"Pss": 12, b"read_bytes": 5, b"Shmem": 7}


def test_times_and_memory_of_a_process() -> None:
    with child(burn(0.2)) as pid:
        process = Process(pid)
        # From its last write to its wait is a while on a busy host, and /proc tells nobody.
        while not is_asleep(pid):
            time.sleep(0.001)
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
    group = Group(reads_io=False, measures_exactly=True)
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
            group = Group(reads_io=False, measures_exactly=True)
            for pid in (one, two):
                group.members[pid] = Process(pid)
            group.look()
            group.look_at_memory()
            found = sums([group], 0)
            assert found.resident_bytes > 64 << 20
            exact = whole(measure([group], 0, 1 << 40, sees_mapped=True))
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


def test_a_process_is_seen_through_another_thread_when_its_main_thread_has_ended() -> None:
    def work() -> None:
        code = (
            "import ctypes, os, threading, time\n"
            "held = bytearray(32 << 20)\nheld[::4096] = b'x' * len(held[::4096])\n"
            "threading.Thread(target=time.sleep, args=(60,)).start()\n"
            "number = {'x86_64': 60, 'aarch64': 93}[os.uname().machine]\n"
            "ctypes.CDLL(None).syscall(number, 0)\n"
        )
        os.execv(sys.executable, [sys.executable, "-IS", "-c", code])

    pid = os.fork()
    if pid == 0:
        work()
    try:
        process = Process(pid)
        deadline = time.monotonic() + 20
        while not process.is_zombie:
            assert time.monotonic() < deadline
            process.look()
        process.look_at_memory()
        assert process.threads == 2
        assert process.body != pid
        assert process.anonymous_bytes > 32 << 20
        assert sum(without_files(process.body)) > 32 << 20
        assert proportional(process.body)[0] > 32 << 20
        process.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("ends_main_thread", [False, True])
def test_memory_that_another_process_gave_is_seen(ends_main_thread: bool) -> None:
    """process_vm_writev(2) and its like: the pages are one's, the faults the other's."""
    size = 32 << 20
    code = (
        "import ctypes, os, signal, sys, threading\n"
        "class Vector(ctypes.Structure):\n"
        "    _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.mmap.restype = ctypes.c_void_p\n"
        f"there = libc.mmap(None, ctypes.c_size_t({size}), 3, 0x22, -1, ctypes.c_size_t(0))\n"
        "ready, done = os.pipe()\n"
        "def sleep():\n"
        "    os.write(done, b'%d' % threading.get_native_id())\n"
        "    threading.Event().wait()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        f"    if {ends_main_thread}:\n"
        "        threading.Thread(target=sleep).start()\n"
        "        number = {'x86_64': 60, 'aarch64': 93}[os.uname().machine]\n"
        "        libc.syscall(number, 0)\n"
        "    sleep()\n"
        "target = int(os.read(ready, 99))\n"
        "print(pid, flush=True)\n"
        "sys.stdin.readline()\n"
        f"data = ctypes.create_string_buffer(b'x' * {size}, {size})\n"
        f"own = Vector(ctypes.addressof(data), {size})\n"
        f"its = Vector(there, {size})\n"
        "written = libc.process_vm_writev(target, ctypes.byref(own), 1, ctypes.byref(its), 1, 0)\n"
        "print(written, flush=True)\n"
        "sys.stdin.readline()\n"
        "os.kill(pid, signal.SIGKILL)\n"
    )
    arguments = [sys.executable, "-IS", "-c", code]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        pid = int(writer.stdout.readline())
        group = Group(reads_io=False, measures_exactly=True)
        group.members[pid] = Process(pid)
        deadline = time.monotonic() + 20
        while ends_main_thread and not group.members[pid].is_zombie:
            assert time.monotonic() < deadline
            group.look()
        group.look()
        before = group.members[pid].resident_bytes
        writer.stdin.write("go on\n")
        assert int(writer.stdout.readline()) == size
        group.look()
        assert group.members[pid].resident_bytes - before > size // 2
        group.close()
        writer.stdin.write("end\n")


def test_what_a_fork_inherited_is_not_its_own() -> None:
    hold(32 << 20)()
    try:
        with child(lambda: None) as one, child(hold(16 << 20)) as two:
            group = Group(reads_io=False, measures_exactly=False)
            group.members[one] = Process(one)
            # As it was before it grew.
            group.members[two] = Process(two)
            group.look()
            assert not group.members[one].has_execed
            assert group.members[one].own_bytes == 0
            grown = group.members[two]
            grown.inherited_bytes = grown.anonymous_bytes - (16 << 20)
            shared = max(without_files(pid)[1] for pid in (one, two))
            assert 16 << 20 <= certain([group], 0) <= (16 << 20) + shared
            group.close()
    finally:
        del globals()["_held"]
