# SPDX-License-Identifier: Apache-2.0
"""Open the source of a bind where only root decides on the path's meaning.

An admin lists paths, also below directories of users. A user who replaces a part of such a path by
a symbolic link would choose any directory of the host for a sandbox, so only links of root's are
followed. Directories that a user moves about are the user's own.
"""

from __future__ import annotations

import errno
import os
import stat

_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# As of path_resolution(7).
_MOST_LINKS = 40


class BadSource(Exception):
    """Raised when a path must not be bound; the text says why."""


def open_source(path: str) -> int:
    """Return an O_PATH descriptor of an absolute path. Raises OSError, BadSource."""
    left = _parts(path)
    links = 0
    at = os.open("/", _FLAGS)
    try:
        while left:
            fd = os.open(left.pop(), _FLAGS, dir_fd=at)
            status = os.fstat(fd)
            if not stat.S_ISLNK(status.st_mode):
                os.close(at)
                at = fd
                continue
            try:
                target = os.readlink("", dir_fd=fd)
            finally:
                os.close(fd)
            links += 1
            if status.st_uid != 0:
                raise BadSource(
                    f"a symbolic link on the way to {path} belongs to uid {status.st_uid}: only "
                    "root's are followed"
                )
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            left += _parts(target)
            if target.startswith("/"):
                os.close(at)
                at = os.open("/", _FLAGS)
    except BaseException:
        os.close(at)
        raise
    return at


def _parts(path: str) -> list[str]:
    """Return the names of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name]
