# SPDX-License-Identifier: Apache-2.0
"""Namespaces that live without a process: files of /proc/PID/ns, bind-mounted on pin files.

<runtime-dir>/pins is a tmpfs of root's alone. The mount is private, since a mount namespace cannot
be pinned below a shared mount (mount_namespaces(7)). Each sandbox has a directory there with a file
for each namespace not shared with the host.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection

from sandboxd.isolation import private_tmpfs
from sandboxd.osutil import linux
from sandboxd.osutil.files import names_in
from sandboxd.osutil.namespaces import namespace_path

DIRECTORY = "pins"
NET, IPC, UTS, MNT = "net", "ipc", "uts", "mnt"
_OF_A_ROOT = (IPC, UTS, MNT)


def root_of(runtime_directory: str) -> str:
    """Return the directory of the pins."""
    return os.path.join(runtime_directory, DIRECTORY)


def kinds(isolation: str, network: str) -> tuple[str, ...]:
    """Return the kinds of namespace that a sandbox has of its own, in the order of joining.

    isolation, network: as model.Isolation and model.Network spell them.
    """
    own_network = () if network == "host" else (NET,)
    return own_network if isolation in {"none", "basic"} else (*own_network, *_OF_A_ROOT)


def prepare(root: str) -> None:
    """Mount the private tmpfs, unless mounted. Raises OSError."""
    private_tmpfs.prepare(root, 0o700, private=True)


def pin(namespace: str, directory: str, kind: str) -> None:
    """Keep a namespace, given as a file of /proc/PID/ns. Raises OSError."""
    path = os.path.join(directory, kind)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    linux.mount(namespace, path, None, linux.MS_BIND)


def are_complete(directory: str, wanted: Collection[str]) -> bool:
    """Whether the directory has exactly the wanted pins."""
    nsfs = os.stat(namespace_path(NET)).st_dev
    try:
        if set(os.listdir(directory)) != set(wanted):
            return False
        return all(os.stat(os.path.join(directory, kind)).st_dev == nsfs for kind in wanted)
    except FileNotFoundError:
        return False


def remove(directory: str) -> None:
    """Unpin a sandbox's namespaces, if any. Raises OSError."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        path = os.path.join(directory, name)
        try:
            linux.unmount(path)
        except OSError as exc:
            # A builder killed early leaves a file without a mount.
            if exc.errno != errno.EINVAL:
                raise
        os.unlink(path)
    os.rmdir(directory)


def remove_others(root: str, kept: Collection[str]) -> None:
    """Let go of all but the sandboxes `kept`."""
    for name in names_in(root):
        if name not in kept:
            remove(os.path.join(root, name))


def remove_all(root: str) -> None:
    """Unpin all namespaces and remove the private tmpfs."""
    remove_others(root, ())
    private_tmpfs.remove(root)
