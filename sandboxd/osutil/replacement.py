# SPDX-License-Identifier: Apache-2.0
"""Files of a user's own that are replaced whole or not at all, with a mode and a time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable

from sandboxd.osutil.labels import read_label


def umask() -> int:
    """Return this process's umask from /proc; umask(2) would set it for all threads."""
    text = read_label("/proc/self/status", "Umask")
    assert text is not None, "Linux 4.7 and later tell the umask"
    return int(text, 8)


def replace_file(path: str, pieces: Iterable[bytes], mode: int, mtime: float | None = None) -> None:
    """Write a file, whole or not at all. mode: less the umask. mtime: in seconds since 1970.

    Raises OSError that names `path`, never the temporary file.
    """
    directory = os.path.dirname(path) or "."
    try:
        descriptor, made = tempfile.mkstemp(prefix=".sandboxd-", dir=directory)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, path) from exc
    try:
        with open(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fchmod(file.fileno(), mode & ~umask())
            if mtime is not None:
                os.utime(file.fileno(), (mtime, mtime))
        os.replace(made, path)
    except BaseException as exc:
        os.unlink(made)
        if isinstance(exc, OSError) and exc.filename == made:
            raise OSError(exc.errno, exc.strerror, path) from exc
        raise
