# SPDX-License-Identifier: Apache-2.0
"""Who is stopped before whom, and that a parent stands still first."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress

import pytest

from sandboxd.supervisor import order
from sandboxd.supervisor.order import by_depth, continue_children, stop_parents
from sandboxd.supervisor.process import Process


def family(parents: dict[int, int]) -> dict[int, Process]:
    made = {}
    for pid, parent in parents.items():
        made[pid] = Process(pid)
        made[pid].parent = parent
    return made


def test_levels_are_from_the_top_down() -> None:
    members = family({5: 4, 4: 2, 2: 1, 3: 1, 7: 3, 9: 8})
    levels = [sorted(p.pid for p in level) for level in by_depth(members)]
    assert levels == [[2, 3, 9], [4, 7], [5]]
    assert by_depth({}) == []


def test_a_circle_of_stale_parents_ends() -> None:
    members = family({2: 3, 3: 2})
    assert sorted(p.pid for level in by_depth(members) for p in level) == [2, 3]


def test_nobody_is_waited_for_who_cannot_be_stopped_now() -> None:
    """A parent in vfork(2) takes no signal before its child is gone."""
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    clone_vfork = 0x4000
    read_fd, write_fd = os.pipe()
    top = os.fork()
    if top == 0:
        ctypes.CDLL(None).syscall(number, clone_vfork | signal.SIGCHLD, 0, 0, 0, 0)
        os.write(write_fd, b"%d" % os.getpid())
        signal.pause()
    child = int(os.read(read_fd, 99))
    members = {pid: Process(pid) for pid in (top, child)}
    try:
        for process in members.values():
            process.look()
        assert members[child].parent == top
        stop_parents(members)
        assert members[top].stands_still()
    finally:
        for pid in (top, child):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(top, 0)
        for process in members.values():
            process.close()
        os.close(read_fd)
        os.close(write_fd)


def test_a_parent_never_sees_its_child_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that waits with WUNTRACED writes what it saw."""
    # However busy this host is.
    monkeypatch.setattr(order, "_STAND_SECONDS", 20.0)
    read_fd, write_fd = os.pipe()
    top = os.fork()
    if top == 0:
        child = os.fork()
        if child == 0:
            while True:
                time.sleep(0.0005)
        os.write(write_fd, b"%d\n" % child)
        while True:
            _, status = os.waitpid(child, os.WUNTRACED)
            os.write(write_fd, b"stopped\n" if os.WIFSTOPPED(status) else b"ended\n")
            if not os.WIFSTOPPED(status):
                os._exit(0)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as lines:
        child = int(lines.readline())
        members = {pid: Process(pid) for pid in (top, child)}
        try:
            for process in members.values():
                process.look()
            for _ in range(20):
                stop_parents(members)
                assert members[top].stands_still()
                members[child].signal(signal.SIGSTOP)
                deadline = time.monotonic() + 20
                while not members[child].stands_still():
                    assert time.monotonic() < deadline
                continue_children(members)
            os.kill(child, signal.SIGKILL)
            assert lines.read() == b"ended\n"
        finally:
            for number in (child, top):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            os.waitpid(top, 0)
            for process in members.values():
                process.close()
