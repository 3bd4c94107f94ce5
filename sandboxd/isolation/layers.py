# SPDX-License-Identifier: Apache-2.0
"""Inodes of a sandbox's own over directories that all sandboxes read: an overlay that adds nothing.

Locks (flock(2), fcntl(2)) and watches (inotify(7)) belong to an inode. Over a plain bind mount two
sandboxes would see each other's on every file of /usr; an overlay has inodes for itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from sandboxd.isolation import linux

_FLAGS = linux.MS_RDONLY | linux.MS_NODEV | linux.MS_NOSUID
_OCTAL = re.compile(r"\\([0-7]{3})")


def cover(directories: Iterable[str], scratch: str) -> None:
    """Put an overlay on each directory, and on each mount below it, in this mount namespace.

    scratch: a directory that is empty afterwards as before. Raises OSError: ENODEV where the kernel
    has no overlayfs, EINVAL where a file system cannot be below one.
    """
    # An overlay without an upper layer needs two lower ones (overlayfs.rst).
    linux.mount("empty", scratch, "tmpfs", _FLAGS, "size=4k")
    empty = _open(scratch)
    below = _mount_points()
    for top in directories:
        inside = sorted(path for path in below if path.startswith(f"{top}/"))
        # Opened before the first overlay hides what is mounted below it.
        for path, fd in [(path, _open(path)) for path in (top, *inside)]:
            source = f"/proc/self/fd/{fd}"
            if os.path.isdir(source):
                layers = f"lowerdir={source}:/proc/self/fd/{empty}"
                linux.mount("overlay", path, "overlay", _FLAGS, layers)
            else:
                # A single file, such as a container's /etc/resolv.conf.
                linux.mount(source, path, None, linux.MS_BIND)
            os.close(fd)
    os.close(empty)
    # Not earlier: what is mounted nowhere can be no layer.
    linux.unmount(scratch)


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _mount_points() -> set[str]:
    """proc_pid_mountinfo(5): the fifth field, spaces and the like in octal."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        fields = [line.split(" ")[4] for line in file]
    return {_OCTAL.sub(lambda match: chr(int(match[1], 8)), field) for field in fields}
