# SPDX-License-Identifier: Apache-2.0
"""A process that ends is told as ended, whatever the kernel says."""

from __future__ import annotations

import os
import select
import threading

import pytest

from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.pidfd import has_ended, kill, open_pidfd


def test_a_live_process_has_one() -> None:
    fd = open_pidfd(os.getpid())
    assert not select.select([fd], [], [], 0)[0]
    os.close(fd)


def test_a_number_that_leads_no_threads_is_no_process() -> None:
    """What the kernel says of a process between its parent's wait and its removal."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        with pytest.raises(ProcessLookupError):
            open_pidfd(thread.native_id)
    finally:
        done.set()
        thread.join()


def test_an_ended_process_has_none() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(ProcessLookupError):
        open_pidfd(pid)


def test_the_end_is_waited_for() -> None:
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write_fd)
        os.read(read_fd, 1)
        os._exit(0)
    with closing_fd(read_fd), closing_fd(open_pidfd(pid)) as pidfd:
        assert not has_ended(pidfd)
        os.close(write_fd)
        assert has_ended(pidfd, within_seconds=10.0)
        os.waitpid(pid, 0)
        kill(pidfd)


def test_a_killed_process_ends() -> None:
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(read_fd, 1)
        os._exit(0)
    with closing_fd(read_fd), closing_fd(write_fd), closing_fd(open_pidfd(pid)) as pidfd:
        kill(pidfd)
        assert has_ended(pidfd, within_seconds=10.0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
