# SPDX-License-Identifier: Apache-2.0
"""Make the host's file system read-only in a mount namespace, every mount.

Files in directories that every user of the host may write (/run/lock, /var/crash, a shared
directory) would outlive the sandbox, with a uid that a later sandbox gets. Writing to devices,
sockets and pipes does not write their file system, and still works.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from sandboxd.osutil import linux
from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.mountinfo import mounts

# Options of a mount (proc_pid_mountinfo(5)), and the flags of mount(2) that keep the options.
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
# A later mount covers the mount point.
_OUT_OF_REACH = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.EACCES)


def seal(kept: Iterable[str]) -> None:
    """Make this process's own, private mount namespace read-only, except `kept`. Raises OSError."""
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
    """In a chroot, make the root directory a mount of its own, which `/..` leads to."""
    linux.mount("/", "/", None, linux.MS_BIND | linux.MS_REC)
    with closing_fd(os.open("/..", os.O_PATH | os.O_DIRECTORY)) as root:
        linux.change_root(root)


def _seal_one_by_one(kept: tuple[str, ...]) -> None:
    if not any(mount.point == "/" for mount in mounts()):
        _make_root_a_mount()
    flags = linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY
    for mount in list(mounts()):
        if mount.point in kept:
            continue
        keep = sum(flag for name, flag in _KEPT_FLAGS.items() if name in mount.options)
        try:
            linux.mount("none", mount.point, None, flags | keep)
        except OSError as exc:
            if exc.errno not in _OUT_OF_REACH:
                raise
