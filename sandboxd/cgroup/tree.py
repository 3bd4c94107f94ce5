# SPDX-License-Identifier: Apache-2.0
"""Lists cgroups, and waits for the end of a cgroup."""

from __future__ import annotations

import asyncio
import os
import time

_FIRST_WAIT_SECONDS = 0.002
_LONGEST_WAIT_SECONDS = 0.05


def exists(directory: str) -> bool:
    """Return whether the cgroup exists."""
    return os.path.isdir(directory)


def children(directory: str, suffix: str) -> list[str]:
    """Return the names of the cgroups right below a cgroup; none where the cgroup is missing."""
    try:
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if e.name.endswith(suffix) and e.is_dir())
    except FileNotFoundError:
        return []


async def wait_gone(directory: str, *, timeout_seconds: float) -> bool:
    """Wait until the cgroup is removed; False at the deadline.

    A poll, since kernfs tells a watcher of an attribute's change, but not of a directory's end
    before Linux 6.9.
    """
    deadline = time.monotonic() + timeout_seconds
    wait = _FIRST_WAIT_SECONDS
    while exists(directory):
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, _LONGEST_WAIT_SECONDS)
    return True
