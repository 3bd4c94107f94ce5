# SPDX-License-Identifier: Apache-2.0
"""A small tmpfs of root's below the runtime directory, as a place for mount points."""

from __future__ import annotations

import os
from contextlib import suppress

from sandboxd.osutil import linux
from sandboxd.osutil.descriptors import open_directory
from sandboxd.osutil.locks import locked


def prepare(root: str, mode: int, *, private: bool = False) -> None:
    """Mount the tmpfs, unless mounted. private: not in other namespaces. Raises OSError."""
    os.makedirs(root, mode=mode, exist_ok=True)
    with locked(open_directory(os.path.dirname(root))):
        if not os.path.ismount(root):
            flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
            name = os.path.basename(root)
            linux.mount(name, root, "tmpfs", flags, f"mode={mode:04o},size=1m")
        if private:
            linux.mount("none", root, None, linux.MS_PRIVATE)


def remove_unused(root: str) -> None:
    """Remove the tmpfs unless files or mount points are left there. Raises OSError."""
    with suppress(FileNotFoundError):
        if not os.listdir(root):
            remove(root)


def remove(root: str) -> None:
    """Unmount the tmpfs and remove the directory, if present. Raises OSError."""
    with suppress(FileNotFoundError):
        if os.path.ismount(root):
            linux.unmount(root)
        os.rmdir(root)
