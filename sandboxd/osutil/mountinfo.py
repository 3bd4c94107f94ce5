# SPDX-License-Identifier: Apache-2.0
"""The mounts of this process's mount namespace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

MOUNTINFO = "/proc/self/mountinfo"
# Blanks, backslashes and the like, in octal.
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """One mount.

    device: of the file system. root: the directory of the file system that is mounted at `point`.
    options: of the mount; super_options: of the file system.
    """

    device: int
    root: str
    point: str
    options: frozenset[str]
    kind: str
    source: str
    super_options: tuple[str, ...]


def mounts(path: str = MOUNTINFO) -> Iterator[Mount]:
    """Yield the mounts below the root directory, in the order of mounting.

    Source: proc_pid_mountinfo(5). Raises OSError.
    """
    with open(path, "rb") as file:
        for line in file:
            before, _, after = line.rstrip(b"\n").partition(b" - ")
            fields = before.split(b" ")
            # The source may be empty.
            kind, source, super_options = after.split(b" ")[:3]
            major, _, minor = fields[2].partition(b":")
            yield Mount(
                device=os.makedev(int(major), int(minor)),
                root=_text(fields[3]),
                point=_text(fields[4]),
                options=frozenset(_text(fields[5]).split(",")),
                kind=_text(kind),
                source=_text(source),
                super_options=tuple(_text(option) for option in super_options.split(b",")),
            )


def _text(field: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field))
