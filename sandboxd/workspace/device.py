# SPDX-License-Identifier: Apache-2.0
"""The disk behind a directory, through partitions, dm, md and overlays.

An IO limit belongs where all IO passes: on the lowest device above several, or on a loop device.
Below a loop device the kernel writes the image's pages back in its own time and name: under Linux
6.12 a program with 5 MiB/s on the image's disk wrote 65 MiB/s.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from sandboxd.osutil.files import names_in
from sandboxd.osutil.mountinfo import MOUNTINFO, Mount, mounts

_SYS = "/sys/dev/block"
_MAX_STEPS = 16


@dataclass(frozen=True, slots=True)
class Backing:
    """device: a device node or None; detail: the layers found on the way, for people."""

    device: str | None
    detail: str


def _number_of(path: str) -> int:
    """Return the number of the device below a path, or of the device node at the path."""
    found = os.stat(path)
    return found.st_rdev if stat.S_ISBLK(found.st_mode) else found.st_dev


def backing(
    path: str,
    *,
    sys_root: str = _SYS,
    mountinfo: str = MOUNTINFO,
    nodes: str = "/dev",
    number_of: Callable[[str], int] = _number_of,
) -> Backing:
    """Return the block device under the file system of `path`.

    Raises OSError where `path` is missing. The keyword arguments are the host's own paths; tests
    give theirs.
    Source: Documentation/ABI/testing/sysfs-block, Documentation/filesystems/overlayfs.rst.
    """
    trail: list[str] = []
    path = os.path.abspath(path)
    for _ in range(_MAX_STEPS):
        number = number_of(path)
        if os.major(number) == 0:
            found = _without_device(number, path, mountinfo)
            if isinstance(found, str):
                return Backing(None, " on ".join([*trail, found]))
            kind, path = found
            trail.append(kind)
            try:
                number_of(path)
            except OSError:
                # A container's mount namespace has neither the host's directories nor the device
                # nodes.
                unseen = f"{path}, which is not to be seen from here"
                return Backing(None, " on ".join([*trail, unseen]))
            continue
        _descend(number, sys_root, trail)
        node = os.path.join(nodes, trail[-1])
        return Backing(node if os.path.exists(node) else None, " on ".join(trail))
    return Backing(None, " on ".join([*trail, "too many layers to follow"]))


def _without_device(number: int, path: str, mountinfo: str) -> tuple[str, str] | str:
    """Return kind and path of the layer below a file system, or why none is, as a string."""
    mount = _find_mount(number, path, mountinfo)
    if mount is None:
        return "a file system that this process does not see mounted"
    options = dict(option.partition("=")[::2] for option in mount.super_options)
    if mount.kind == "overlay" and "upperdir" in options:
        # The path itself: the upper directory's name may be a different file's by now.
        below = os.path.relpath(path, mount.point)
        upper = os.path.join(options["upperdir"], mount.root.lstrip("/"), below)
        return "overlay", os.path.normpath(upper)
    if mount.source.startswith("/dev/"):
        # btrfs, possibly with several devices.
        return mount.kind, mount.source
    return f"{mount.kind}, which has no block device"


def _descend(number: int, sys_root: str, trail: list[str]) -> None:
    """Append device names from a device down to the lowest with one device below."""
    directory = os.path.realpath(os.path.join(sys_root, f"{os.major(number)}:{os.minor(number)}"))
    while True:
        trail.append(os.path.basename(directory))
        if os.path.exists(os.path.join(directory, "partition")):
            directory = os.path.dirname(directory)
            continue
        below = names_in(os.path.join(directory, "slaves"))
        if len(below) != 1:
            return
        directory = os.path.realpath(os.path.join(directory, "slaves", below[0]))


def _find_mount(number: int, path: str, mountinfo: str) -> Mount | None:
    """Return the mount of a file system that holds a path, else any mount of the file system."""
    found = None
    for mount in mounts(mountinfo):
        if mount.device == number:
            if found is None or os.path.commonpath([path, mount.point]) == mount.point:
                found = mount
    return found
