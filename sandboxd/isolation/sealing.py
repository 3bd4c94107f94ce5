# SPDX-License-Identifier: Apache-2.0
"""Makes the host's file system read-only in a mount namespace, all of it: whatever the host lets
everybody write (/run/lock, /var/crash, a shared directory) would be left behind by a uid that
another sandbox gets later.

Devices, sockets and pipes are not written by way of their file system, and go on to work.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator

from sandboxd.osutil import linux

# proc_pid_mountinfo(5): per-mount options, and the flags of mount(2) that keep them.
_KEPT_FLAGS = {
    "nosuid": linux.MS_NOSUID,
    "nodev": linux.MS_NODEV,
    "noexec": linux.MS_NOEXEC,
    "noatime": linux.MS_NOATIME,
    "nodiratime": linux.MS_NODIRATIME,
    "relatime": linux.MS_RELATIME,
}
# A kernel before Linux 5.12, or a container's filter that does not know the call.
_NO_SUCH_CALL = (errno.ENOSYS, errno.EPERM)
# What is mounted there was covered by another mount since.
_OUT_OF_REACH = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.EACCES)


def seal(kept: Iterable[str]) -> None:
    """Make all mounts of this process' mount namespace read-only, but those on `kept`.

    The namespace must be this process' own, and its mounts private. Raises OSError.
    """
    kept = tuple(kept)
    try:
        _seal_tree()
    except OSError as exc:
        if exc.errno not in _NO_SUCH_CALL:
            raise
        _seal_one_by_one(kept)
        return
    for path in kept:
        linux.change_mounts(path, 0, linux.MOUNT_ATTR_RDONLY, recursive=False)


def _seal_tree() -> None:
    try:
        linux.change_mounts("/", linux.MOUNT_ATTR_RDONLY, 0, recursive=True)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
        _make_root_a_mount()
        linux.change_mounts("/", linux.MOUNT_ATTR_RDONLY, 0, recursive=True)


def _make_root_a_mount() -> None:
    """In a chroot: its directory becomes a mount of its own, which `/..` leads to."""
    linux.mount("/", "/", None, linux.MS_BIND | linux.MS_REC)
    root = os.open("/..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fchdir(root)
    os.chroot(".")
    os.close(root)


def _seal_one_by_one(kept: tuple[str, ...]) -> None:
    if not any(point == "/" for point, _ in _mounts()):
        _make_root_a_mount()
    flags = linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY
    for point, options in list(_mounts()):
        if point in kept:
            continue
        keep = sum(flag for name, flag in _KEPT_FLAGS.items() if name in options)
        try:
            linux.mount("none", point, None, flags | keep)
        except OSError as exc:
            if exc.errno not in _OUT_OF_REACH:
                raise


def _mounts() -> Iterator[tuple[str, frozenset[str]]]:
    """Mount points in our sight, in the order of mounting, and their options."""
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields = os.fsdecode(line).split(" ")
            yield _unescaped(fields[4]), frozenset(fields[5].split(","))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
