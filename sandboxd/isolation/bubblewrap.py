# SPDX-License-Identifier: Apache-2.0
"""Translate a sandbox's root into bubblewrap's arguments. Pure; no other module knows bubblewrap.

bubblewrap runs as real root, without a user namespace, once for each sandbox. The program that
bubblewrap starts inside only reports that the root is complete and waits until the namespaces are
pinned.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sandboxd.isolation.layers import Mask

PROGRAMS = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
HOST_NAME = "sandbox"
READY = b"ready\n"
# Builtins only, so that an image needs no more than /bin/sh.
_HOLDER = ("/bin/sh", "-c", "echo ready; read -r line")


@dataclass(frozen=True, slots=True)
class Root:
    """The contents of a root. Pairs are (on the host, inside); links are (target, path inside).

    shared: the host's directories that several sandboxes read, to be covered by layers; empty where
    the host has no overlays. masks: the entries left out of shared directories.
    """

    readable: Sequence[tuple[str, str]]
    links: Sequence[tuple[str, str]]
    home: tuple[str, str]
    tmp_directory: str
    shm_bytes: int
    shared: Sequence[str] = ()
    masks: Mapping[str, Mask] = field(default_factory=dict)
    writable: Sequence[tuple[str, str]] = ()


def arguments(program: str, root: Root, *, info_fd: int) -> list[str]:
    """Return bwrap's argv. info_fd: where bwrap shall write the holder's pid, as JSON.

    Every bind is nosuid and nodev, recursive and, unless writable, read-only all through.
    """
    argv = [program, "--unshare-ipc", "--unshare-uts", "--hostname", HOST_NAME]
    argv += ["--cap-drop", "ALL", "--chdir", "/", "--info-fd", str(info_fd)]
    # Without --perms, bwrap makes missing parents for root alone.
    for path in _parents(root):
        argv += ["--perms", "0755", "--dir", path]
    for source, path in root.readable:
        argv += ["--ro-bind", source, path]
    for target, path in root.links:
        argv += ["--symlink", target, path]
    argv += ["--dev", "/dev", "--dir", "/proc", "--dir", "/run"]
    # A tmpfs that root makes is 0755 without --perms.
    argv += ["--perms", "1777", "--size", str(root.shm_bytes), "--tmpfs", "/dev/shm"]  # noqa: S108
    argv += ["--remount-ro", "/dev"]
    for path in ("/tmp", "/var/tmp"):  # noqa: S108 - the mount points, not files in them
        argv += ["--bind", root.tmp_directory, path]
    for source, path in (root.home, *root.writable):
        argv += ["--bind", source, path]
    return [*argv, "--remount-ro", "/", "--", *_HOLDER]


def _parents(root: Root) -> list[str]:
    """Return the directories above a root's content, upper first, but those below a bind."""
    inside = [path for _, path in (*root.readable, *root.links, root.home, *root.writable)]
    inside += ["/var/tmp"]  # noqa: S108 - the mount point
    found = set()
    for path in inside:
        while (path := os.path.dirname(path)) != "/":
            found.add(path)
    taken = {path for _, path in (*root.readable, *root.writable)}
    return sorted(path for path in found if not _is_within(path, taken))


def _is_within(path: str, tops: Collection[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)
