# SPDX-License-Identifier: Apache-2.0
"""Writes below one directory of the caller, never through a symbolic link inside.

An earlier copy out of the same hostile sandbox may have left links there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sandboxd.errors import InvalidRequest
from sandboxd.osutil.descriptors import open_directory
from sandboxd.osutil.files import remove_file

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Below:
    """Writes below one directory, by relative paths without `..`; missing directories are made."""

    def __init__(self, directory: str) -> None:
        self._root = directory

    def make_directory(self, path: str) -> None:
        """Make a directory; an existing directory is no error."""
        with self._opened(path.split("/") if path else []):
            pass

    def new_file(self, path: str, mode: int) -> int:
        """Return a descriptor of a new file, which replaces any non-directory at `path`."""
        with self._parent(path) as (parent, name):
            remove_file(name, above=parent)
            return os.open(name, _NEW_FILE, mode, dir_fd=parent)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link, which replaces any non-directory at `path`."""
        with self._parent(path) as (parent, name):
            remove_file(name, above=parent)
            os.symlink(target, name, dir_fd=parent)

    def settle(self, path: str, mode: int, mtime: int) -> None:
        """Set a directory's mode and mtime (seconds since 1970)."""
        with self._opened(path.split("/") if path else []) as directory:
            os.utime(directory, (mtime, mtime))
            os.chmod(directory, mode)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        *above, name = path.split("/")
        with self._opened(above) as parent:
            yield parent, name

    @contextmanager
    def _opened(self, parts: list[str]) -> Iterator[int]:
        """Open a directory part by part: open(2) follows links in all parts but the last."""
        place = self._root
        here = _enter(self._root, place, None)
        try:
            for part in parts:
                place = os.path.join(place, part)
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
                below = _enter(part, place, here)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)


def _enter(name: str, place: str, above: int | None) -> int:
    try:
        return open_directory(name, above=above, follow=False)
    except OSError as exc:
        # O_NOFOLLOW with O_DIRECTORY on a link: ENOTDIR by Linux, ELOOP by open(2).
        is_link = exc.errno in {errno.ELOOP, errno.ENOTDIR} and os.path.islink(place)
        if not is_link:
            raise
        raise InvalidRequest(
            f"cannot write below {place!r}: it is a symbolic link",
            hint="remove it, or copy to another directory",
        ) from exc
