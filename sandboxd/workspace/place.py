# SPDX-License-Identifier: Apache-2.0
"""Where the files of one sandbox are, and who works on them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandboxd.workspace.workers import Workers


@dataclass(frozen=True, slots=True)
class Place:
    """staging: a directory of root's on the home's file system, out of the program's reach.

    remove: removes a tree in `staging` and returns once it is gone. take: asked before so many
    bytes are written; raises DiskQuotaExceeded.
    """

    home: str
    staging: str
    uid: int
    workers: Workers
    remove: Callable[[str], Awaitable[None]]
    take: Callable[[int], Awaitable[None]]


def write_all(fd: int, data: bytes) -> None:
    """write(2) until everything is written. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
