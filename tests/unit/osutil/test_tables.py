# SPDX-License-Identifier: Apache-2.0
"""Tables of descriptors, of threads made here."""

from __future__ import annotations

import ctypes
import os
import threading

import pytest

from sandboxd.osutil.tables import descriptor_tables

_libc = ctypes.CDLL(None, use_errno=True)


def test_threads_have_one_table_unless_they_were_given_their_own() -> None:
    """unshare(2), CLONE_FILES (0x400)."""
    made, end = threading.Event(), threading.Event()

    def apart() -> None:
        assert _libc.unshare(0x400) == 0
        made.set()
        end.wait(20)

    threads = [threading.Thread(target=end.wait, args=(20,)) for _ in range(3)]
    before = set(descriptor_tables(os.getpid()))
    threads.append(threading.Thread(target=apart))
    for thread in threads:
        thread.start()
    try:
        assert made.wait(20)
        assert set(descriptor_tables(os.getpid())) == before | {threads[-1].native_id}
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_there_is_none_of_a_process_that_is_gone() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        list(descriptor_tables(pid))
