# SPDX-License-Identifier: Apache-2.0
"""The room of a file system."""

from __future__ import annotations

import os
from typing import NamedTuple


class Space(NamedTuple):
    """Bytes and inodes. free: for users other than root; used: not free for anybody.

    inodes: 0 where the file system makes inodes as needed.
    """

    total_bytes: int
    used_bytes: int
    free_bytes: int
    inodes: int
    used_inodes: int
    free_inodes: int


def space_of(place: str | int) -> Space:
    """Return the room of the file system of a path or descriptor: statvfs(3). Raises OSError."""
    found = os.statvfs(place)
    return Space(
        total_bytes=found.f_blocks * found.f_frsize,
        used_bytes=(found.f_blocks - found.f_bfree) * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        used_inodes=found.f_files - found.f_ffree,
        free_inodes=found.f_favail,
    )
