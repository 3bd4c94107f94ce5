# SPDX-License-Identifier: Apache-2.0
"""A process that ends is told as ended, whatever the kernel says."""

from __future__ import annotations

import os
import select
import threading

import pytest

from sandboxd.osutil.pidfd import open_pidfd


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
