# SPDX-License-Identifier: Apache-2.0
"""User quota of a file system (quotactl(2)): a sandbox cannot leave its uid.

Needs user quota switched on: ext4 made or tuned with `-O quota` and mounted with `usrquota`, XFS
mounted with `uquota`, tmpfs with `usrquota` (Linux 6.6).
"""

from __future__ import annotations

import ctypes
import errno
import sys

from sandboxd.osutil.descriptors import closing_fd, open_directory
from sandboxd.osutil.libc import checked, libc

# Linux 5.14; the same on every architecture.
_QUOTACTL_FD = 443
# linux/quota.h, linux/dqblk_xfs.h
_USRQUOTA = 0
_Q_GETQUOTA = 0x800007
_Q_SETQUOTA = 0x800008
_Q_XGETQSTAT = 0x5805
_ACCOUNTED_AND_ENFORCED = 0x3
_QIF_LIMITS = 1 | 4
_UNIT = 1024
# A quota on bytes alone leaves all inodes of the file system to a maker of empty files.
_BYTES_PER_INODE = 4096
_MIN_INODES = 1024


class _Dqblk(ctypes.Structure):
    _fields_ = [
        ("bhardlimit", ctypes.c_uint64),
        ("bsoftlimit", ctypes.c_uint64),
        ("curspace", ctypes.c_uint64),
        ("ihardlimit", ctypes.c_uint64),
        ("isoftlimit", ctypes.c_uint64),
        ("curinodes", ctypes.c_uint64),
        ("btime", ctypes.c_uint64),
        ("itime", ctypes.c_uint64),
        ("valid", ctypes.c_uint32),
    ]


class UserQuota:
    """User quotas of the file system below a directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def obstacle(self) -> str | None:
        """Return why the quota cannot be used here, in words; None where the quota holds."""
        state = (ctypes.c_uint8 * 256)()
        try:
            self._call(_Q_XGETQSTAT, 0, state)
            # struct fs_quota_stat: qs_version, a hole, qs_flags.
            flags = int.from_bytes(bytes(state[2:4]), sys.byteorder)
            if flags & _ACCOUNTED_AND_ENFORCED != _ACCOUNTED_AND_ENFORCED:
                return "user quota is not enforced on the file system"
            # Q_GETQUOTA of a foreign uid needs the same right as Q_SETQUOTA (CAP_SYS_ADMIN).
            self.used(1)
        except OSError as exc:
            if exc.errno == errno.EPERM:
                return "the daemon may not set quotas (CAP_SYS_ADMIN)"
            if exc.errno == errno.ENOSYS:
                return "quotactl_fd(2) is missing here, or kept from the daemon's container"
            return "the file system has no user quota switched on"
        return None

    def limit(self, uid: int, size_bytes: int) -> None:
        """Limit `uid` to `size_bytes`, and to one inode for each 4 KiB. Raises OSError."""
        blocks = -(-size_bytes // _UNIT)
        inodes = max(_MIN_INODES, size_bytes // _BYTES_PER_INODE)
        self._set(uid, blocks, inodes)

    def lift(self, uid: int) -> None:
        """Remove the limits of `uid`. Raises OSError."""
        self._set(uid, 0, 0)

    def used(self, uid: int) -> int:
        """Return the bytes that files of `uid` take on the whole file system. Raises OSError."""
        found = _Dqblk()
        self._call(_Q_GETQUOTA, uid, found)
        return int(found.curspace)

    def _set(self, uid: int, blocks: int, inodes: int) -> None:
        asked = _Dqblk(bhardlimit=blocks, ihardlimit=inodes, valid=_QIF_LIMITS)
        self._call(_Q_SETQUOTA, uid, asked)

    def _call(self, command: int, uid: int, data: ctypes.Structure | ctypes.Array[ctypes.c_uint8],
              ) -> None:  # fmt: skip
        with closing_fd(open_directory(self._directory)) as fd:
            result = libc.syscall(
                ctypes.c_long(_QUOTACTL_FD),
                ctypes.c_long(fd),
                ctypes.c_long((command << 8) | _USRQUOTA),
                ctypes.c_long(uid),
                ctypes.byref(data),
            )
            checked(result, path=self._directory)
