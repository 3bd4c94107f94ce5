# SPDX-License-Identifier: Apache-2.0
"""Repeat calls that failed for want of memory in the shim's own, full, cgroup.

While the victim of the OOM killer is still exiting, any system call of the shim that takes
accounted kernel memory, open(2) first, can fail with ENOMEM: the shim may not be killed, and no
other process is left to kill (kernel: mem_cgroup_out_of_memory, "no killable processes").
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

_SECONDS = 10.0
_PAUSE_SECONDS = 0.005

_Result = TypeVar("_Result")


def patiently(call: Callable[[], _Result]) -> _Result:
    """Return the result of `call`. Raises as `call` does, but ENOMEM only after 10 seconds."""
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return call()
        except OSError as exc:
            if exc.errno != errno.ENOMEM or time.monotonic() > deadline:
                raise
        # No event tells that an exiting process has freed its memory.
        time.sleep(_PAUSE_SECONDS)
