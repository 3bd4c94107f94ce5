# SPDX-License-Identifier: Apache-2.0
"""A child of clone3(2) is like one of os.fork: the same program with its own pid and locks."""

from __future__ import annotations

import errno
import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.osutil import births


def end_of(cgroup: int, child: Callable[[], None]) -> int:
    """The exit status of a child born in a cgroup: 0, or 1 where `child` raised."""
    pid = births.fork_into(cgroup)
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_is_a_whole_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(births, "_CLONE_INTO_CGROUP", 0)
    parent, seen = os.getpid(), tmp_path / "seen"

    def child() -> None:
        assert os.getppid() == parent != os.getpid()
        caught: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, _: caught.append(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        thread = threading.Thread(target=lambda: seen.write_text("from a thread"))
        thread.start()
        thread.join(10)
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 3
        assert caught == [signal.SIGUSR1]

    assert end_of(0, child) == 0
    assert seen.read_text() == "from a thread"
    # The parent's locks are free again, too.
    thread = threading.Thread(target=os.getpid)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_directory_that_is_no_cgroup_is_refused(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="clone3") as raised:
            births.fork_into(fd)
    finally:
        os.close(fd)
    assert raised.value.errno in {errno.EBADF, errno.ENOSYS}
