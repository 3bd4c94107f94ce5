# SPDX-License-Identifier: Apache-2.0
"""File descriptors: of directories, of memory, and which of them stay open."""

from __future__ import annotations

import os
import resource
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sandboxd.osutil.files import write_all

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Close a descriptor at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def open_directory(path: str, *, above: int | None = None, follow: bool = True) -> int:
    """Open a directory. Raises OSError.

    above: the directory from which a relative `path` leads. follow: whether the last component may
    be a symbolic link; if not, a link raises NotADirectoryError.
    """
    return os.open(path, _DIRECTORY if follow else _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)


def path_of(fd: int) -> str:
    """Return a path that leads to the open file itself, whatever has become of its name.

    For calls that take no descriptor of O_PATH (proc_pid_fd(5)).
    """
    return f"/proc/self/fd/{fd}"


def memory_file(name: str, data: bytes) -> int:
    """Return a memfd with `data`: no size limit of a socket, and no file to be left behind."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    write_all(fd, data)
    return fd


def allow_most() -> None:
    """Raise this process's limit on open descriptors to the hard limit.

    The low soft limit is for programs that use select(2).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def close_all_but(kept: Collection[int]) -> None:
    """Close all descriptors but 0, 1, 2 and `kept`."""
    low = 3
    for fd in sorted(kept):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
