# SPDX-License-Identifier: Apache-2.0
"""Subvolumes of btrfs, which any user may make below a directory of his own, and no rmdir(2) takes
away with what is in them. Numbers: linux/btrfs.h."""

from __future__ import annotations

import fcntl
import os
import struct

_SNAP_DESTROY = 0x5000940F
_SUBVOL_GETFLAGS = 0x80089419
_SUBVOL_SETFLAGS = 0x4008941A
_READ_ONLY = 1 << 1
# The inode number of each one's top, and of nothing else in it.
_TOP_INODE = 256
# struct btrfs_ioctl_vol_args: a descriptor, which is not used here, and a name.
_ARGUMENTS = struct.Struct("=q4088s")
_FLAGS = struct.Struct("=Q")


def is_subvolume(directory: int, above: int) -> bool:
    """Whether an open directory is the top of one that is not the one `above` is in."""
    found = os.fstat(directory)
    if found.st_ino != _TOP_INODE or found.st_dev == os.fstat(above).st_dev:
        return False
    try:
        _flags(directory)
    except OSError:
        return False
    return True


def make_writable(top: int) -> bool:
    """Take the mark of a read-only snapshot from it; False where it has none or keeps it."""
    try:
        flags = _flags(top)
        fcntl.ioctl(top, _SUBVOL_SETFLAGS, _FLAGS.pack(flags & ~_READ_ONLY))
    except OSError:
        return False
    return bool(flags & _READ_ONLY)


def destroy(directory: int, name: str) -> None:
    """Remove one with all that is in it. Raises OSError: ENOTEMPTY where others are in it."""
    fcntl.ioctl(directory, _SNAP_DESTROY, bytearray(_ARGUMENTS.pack(0, os.fsencode(name))))


def _flags(top: int) -> int:
    answer = fcntl.ioctl(top, _SUBVOL_GETFLAGS, _FLAGS.pack(0))
    flags: int = _FLAGS.unpack(answer)[0]
    return flags
