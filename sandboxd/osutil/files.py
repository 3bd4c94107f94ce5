# SPDX-License-Identifier: Apache-2.0
"""Files: written whole or not at all, made, removed and listed, whether there or not."""

from __future__ import annotations

import os
from contextlib import suppress


def write_all(fd: int, data: bytes) -> None:
    """Write every byte. Raises OSError.

    A write(2) that is cut short reports the cause only at the next call.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def remove_file(path: str | bytes, *, above: int | None = None) -> None:
    """Remove a file or link; a missing one is no error. Raises OSError.

    above: the directory from which a relative `path` leads.
    """
    with suppress(FileNotFoundError):
        os.unlink(path, dir_fd=above)


def touch(path: str) -> None:
    """Make an empty file, mode 0600, where there is none. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def names_in(directory: str) -> list[str]:
    """Return the names in a directory; none where the directory is missing. Raises OSError."""
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def write_text(path: str, text: str) -> None:
    """Write a short text in place, as files of the kernel take values. Raises OSError."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def temporary_name(path: str) -> str:
    """Return the path at which `write_whole` writes before the rename."""
    return f"{path}.tmp"


def write_whole(path: str, data: bytes, *, keeps_space: bool = False) -> None:
    """Write a file, mode 0600, whole or not at all. Raises OSError, and then `path` is as before.

    keeps_space: the temporary file exists, with space reserved for `data`; a failure leaves the
    file for the next try.
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
