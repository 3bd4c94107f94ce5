# SPDX-License-Identifier: Apache-2.0
"""A sandbox's own inodes over directories that all sandboxes read: read-only overlays.

Locks (flock(2), fcntl(2)) and watches (inotify(7)) belong to an inode. Over a plain bind mount two
sandboxes would see each other's on every file of /usr; an overlay has its own inodes. An overlay
can also hide files.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandboxd.osutil import linux
from sandboxd.osutil.descriptors import open_directory, path_of
from sandboxd.osutil.mountinfo import mounts

# A sandbox that starts many executions a second pays for at most one refresh a second.
_BELIEVED_SECONDS = 1.0
# What the mount table calls our overlays.
SOURCE = "sandboxd-layer"
_FLAGS = linux.MS_RDONLY | linux.MS_NODEV | linux.MS_NOSUID
# In an opaque directory no file of the layer below is seen (overlayfs.rst).
_OPAQUE = ("trusted.overlay.opaque", b"y")


@dataclass(frozen=True, slots=True)
class Mask:
    """The names that an overlay leaves out of a directory.

    hidden: names in the directory, existing or not. kept: paths below hidden names that stay
    visible. own: names at which the overlay has an empty file, as a mount point.
    """

    hidden: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def cover(directories: Iterable[str], scratch: str, masks: Mapping[str, Mask]) -> None:
    """Put an overlay on each directory, and on each mount below, in this mount namespace.

    scratch: an empty directory, empty again afterwards. masks: by directory, the names left out.
    Raises OSError: ENODEV where the kernel has no overlayfs, EINVAL where a file system cannot be a
    lower layer.
    """
    linux.mount("layers", scratch, "tmpfs", linux.MS_NODEV | linux.MS_NOSUID, "size=64k")
    # An overlay without an upper layer needs two lower layers (overlayfs.rst).
    _put_directory(f"{scratch}/empty")
    empty = _open(f"{scratch}/empty")
    below = {mount.point for mount in mounts()}
    for number, top in enumerate(directories):
        mask = masks.get(top, Mask())
        # Opened before the first overlay hides the mounts below.
        for path, fd in [(path, _open(path)) for path in (top, *_inside(top, mask, below))]:
            source = path_of(fd)
            # The first layer's permissions are the directory's.
            layers = f"{source}:{path_of(empty)}"
            if path == top and top in masks:
                layers = f"{_write(mask, top, f'{scratch}/{number}')}:{source}"
            if os.path.isdir(source):
                linux.mount(SOURCE, path, "overlay", _FLAGS, f"lowerdir={layers}")
            else:
                # An overlay cannot cover a single file, such as a container's /etc/resolv.conf.
                linux.mount(source, path, None, linux.MS_BIND)
            os.close(fd)
    os.close(empty)
    # Not earlier: what is mounted nowhere can be no layer.
    linux.unmount(scratch)


def _inside(top: str, mask: Mask, mounted: Iterable[str]) -> list[str]:
    """Return the mount points and kept paths below `top` that are not left out."""
    gone = tuple(f"{top}/{name}/" for name in (*mask.hidden, *mask.own))
    found = {path for path in mounted if path.startswith(f"{top}/")}
    stays = {path for path in found if not f"{path}/".startswith(gone)}
    return sorted(stays | {f"{top}/{path}" for path in mask.kept})


class Freshness:
    """The time of the last refresh of a root's overlays: the pin directory's modification time.

    The directory stays open until `close`, since the path is gone after a change of root.
    """

    def __init__(self, directory: str) -> None:
        self._fd = open_directory(directory)

    def ensure(self) -> None:
        """Refresh the overlays if the last refresh began more than a second ago.

        A failed refresh is not recorded, so that the next execution tries again. Raises OSError.
        """
        began = time.time()
        if not 0 <= began - os.fstat(self._fd).st_mtime < _BELIEVED_SECONDS:
            refresh()
            os.utime(self._fd, (began, began))

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._fd)


def refresh() -> None:
    """Have sandboxd's overlays in this mount namespace show changes of the lower directories.

    An overlay caches lookups, also of missing files. A remount drops the cache for all files that
    no process has open. Needs a mounted /proc; raises OSError.
    """
    for mount in list(mounts()):
        if mount.source == SOURCE:
            linux.mount("none", mount.point, None, _FLAGS | linux.MS_REMOUNT)


def _write(mask: Mask, top: str, layer: str) -> str:
    """Make the directory `layer` and return the path."""
    os.mkdir(layer)
    os.chmod(layer, stat.S_IMODE(os.stat(top).st_mode))
    for name in mask.own:
        _put_file(f"{layer}/{name}")
    for name in mask.hidden:
        kept = [path for path in mask.kept if path.startswith(f"{name}/")]
        if not kept:
            # A whiteout (overlayfs.rst).
            os.mknod(f"{layer}/{name}", stat.S_IFCHR, os.makedev(0, 0))
            continue
        _put_directory(f"{layer}/{name}")
        os.setxattr(f"{layer}/{name}", *_OPAQUE)
        for path in kept:
            _put_mount_point(layer, path, is_directory=os.path.isdir(f"{top}/{path}"))
    return layer


def _put_mount_point(layer: str, path: str, *, is_directory: bool) -> None:
    parts = path.split("/")
    for count in range(1, len(parts)):
        _put_directory(f"{layer}/{'/'.join(parts[:count])}")
    if is_directory:
        _put_directory(f"{layer}/{path}")
    else:
        _put_file(f"{layer}/{path}")


def _put_directory(path: str) -> None:
    """Make a directory with mode 0755 whatever the umask, unless present."""
    if not os.path.isdir(path):
        os.mkdir(path)
        os.chmod(path, 0o755)  # noqa: S103 - as /etc itself


def _put_file(path: str) -> None:
    os.mknod(path, stat.S_IFREG)
    os.chmod(path, 0o644)


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)
