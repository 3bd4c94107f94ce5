# SPDX-License-Identifier: Apache-2.0
"""Subvolumes of btrfs: tell, make writable, destroy.

Any user may make a subvolume below a directory of his own, and rmdir(2) removes none that has
contents. Numbers: linux/btrfs.h.
"""

from __future__ import annotations

import fcntl
import os
import struct

_SNAP_DESTROY = 0x5000940F
_SUBVOL_GETFLAGS = 0x80089419
_SUBVOL_SETFLAGS = 0x4008941A
_READ_ONLY = 1 << 1
# Inode number of every subvolume's top directory, and of no file below.
_TOP_INODE = 256
# struct btrfs_ioctl_vol_args: a descriptor, unused here, and a name.
_ARGUMENTS = struct.Struct("=q4088s")
_FLAGS = struct.Struct("=Q")


def is_subvolume(directory: int, above: int) -> bool:
    """Return whether an open directory is the top of a subvolume other than that of `above`."""
    found = os.fstat(directory)
    if found.st_ino != _TOP_INODE or found.st_dev == os.fstat(above).st_dev:
        return False
    try:
        _flags(directory)
    except OSError:
        return False
    return True


def make_writable(top: int) -> bool:
    """Clear the read-only flag of a snapshot; False where the flag is not set or stays."""
    try:
        flags = _flags(top)
        fcntl.ioctl(top, _SUBVOL_SETFLAGS, _FLAGS.pack(flags & ~_READ_ONLY))
    except OSError:
        return False
    return bool(flags & _READ_ONLY)


def destroy(directory: int, name: str) -> None:
    """Remove a subvolume with all contents. Raises OSError: ENOTEMPTY with subvolumes below."""
    fcntl.ioctl(directory, _SNAP_DESTROY, bytearray(_ARGUMENTS.pack(0, os.fsencode(name))))


def _flags(top: int) -> int:
    answer = fcntl.ioctl(top, _SUBVOL_GETFLAGS, _FLAGS.pack(0))
    flags: int = _FLAGS.unpack(answer)[0]
    return flags
