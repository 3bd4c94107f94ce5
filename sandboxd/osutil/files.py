# SPDX-License-Identifier: Apache-2.0
"""Files that are written whole or not at all: the one place that does so."""

from __future__ import annotations

import os
from contextlib import suppress


def write_all(fd: int, data: bytes) -> None:
    """Write every byte. A write(2) that is cut short says why only when it is called again; raises
    OSError then."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def temporary_name(path: str) -> str:
    """Where `write_whole` writes before it renames."""
    return f"{path}.tmp"


def write_whole(path: str, data: bytes, *, keeps_space: bool = False) -> None:
    """Write a file, mode 0600, whole or not at all. Raises OSError, and then `path` is as before.

    keeps_space: the temporary file was made beforehand, with space for `data`; a failure leaves it
    so that the next try has that space.
    """
    temporary = temporary_name(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600)
    try:
        try:
            write_all(fd, data)
            os.ftruncate(fd, len(data))
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except BaseException:
        if not keeps_space:
            with suppress(OSError):
                os.unlink(temporary)
        raise
