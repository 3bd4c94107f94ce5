# SPDX-License-Identifier: Apache-2.0
"""The mount namespace of one execution, with a /proc of the execution's own."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from sandboxd.isolation import ipc, sealing
from sandboxd.osutil import linux
from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.namespaces import enter, open_namespace
from sandboxd.protocol.specification import HostRoot, OwnRoot

_SAFE = linux.MS_NOSUID | linux.MS_NODEV
# Files of /proc that tell of the kernel and of other users of the host, and that no program needs.
_MASKED_FILES = (
    "buddyinfo", "config.gz", "diskstats", "interrupts", "iomem", "ioports", "kallsyms", "kcore",
    "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats",
    "locks", "modules", "pagetypeinfo", "sched_debug", "schedstat", "slabinfo", "softirqs",
    "sysrq-trigger", "timer_list", "timer_stats", "vmallocinfo", "zoneinfo",
)  # fmt: skip
_MASKED_DIRECTORIES = ("acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "scsi")

# The system bus, where connections that have not authenticated count against one number for all
# users (dbus-daemon(1), max_incomplete_connections), and the names and usage of other sandboxes.
_HIDDEN_AT_BASIC = ("/run/dbus", "/var/run/dbus", "/sys/fs/cgroup")


def join(directory: str, kinds: Iterable[str]) -> None:
    """Enter pinned namespaces, the mount namespace last. Raises OSError where a pin is missing."""
    # Opened first: the paths are gone after the change of root.
    opened = [
        (kind, os.open(os.path.join(directory, kind), os.O_RDONLY | os.O_CLOEXEC)) for kind in kinds
    ]
    for kind, fd in opened:
        enter(fd, kind)
        os.close(fd)


def in_own_root(wanted: OwnRoot, *, pid_namespace: bool, refresh: Callable[[], None]) -> None:
    """Copy the sandbox's mount namespace, already joined, and mount a /proc of the execution's own.

    refresh: has the root's overlays show changes on the host; needs /proc.
    """
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    if pid_namespace:
        _own_proc()
        refresh()
        if wanted.masked:
            _mask()
    _own_terminals(wanted.terminals)


def _own_proc() -> None:
    """Mount a /proc that hides the shim, which is in the host's namespaces.

    A process that sees another may read its /proc/PID/net and /proc/PID/mountinfo, that is, the
    other's network and mounts, whatever the uids (proc(5)).
    """
    linux.mount("proc", "/proc", "proc", _SAFE | linux.MS_NOEXEC, "hidepid=2")


def _mask() -> None:
    for name in _MASKED_FILES:
        # Kernels differ in these files.
        with suppress(FileNotFoundError):
            linux.mount("/dev/null", f"/proc/{name}", None, linux.MS_BIND)
    for name in _MASKED_DIRECTORIES:
        with suppress(FileNotFoundError):
            _hide(f"/proc/{name}")
    flags = _SAFE | linux.MS_NOEXEC | linux.MS_RDONLY
    linux.mount("/proc/sys", "/proc/sys", None, linux.MS_BIND | linux.MS_REC)
    linux.mount("none", "/proc/sys", None, linux.MS_BIND | linux.MS_REMOUNT | flags)


def in_host_root(wanted: HostRoot, *, pid_namespace: bool) -> None:
    """Make a mount and an ipc namespace for an execution on the host's root.

    No file of the host can be written, no shared memory and no System V object outlives the
    execution, and /proc shows the execution's pid namespace.
    """
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWIPC)
    stop_propagation()
    _forget(wanted.pins_root)
    _keep_own_disk(wanted)
    own = os.path.dirname(wanted.tmp_directory)
    linux.mount(own, own, None, linux.MS_BIND | linux.MS_REC)
    writable = [own]
    for target in ("/tmp", "/var/tmp"):  # noqa: S108 - the mount points, not files in them
        if _is_directory(target):
            linux.mount(wanted.tmp_directory, target, None, linux.MS_BIND)
            writable.append(target)
    for target, source in wanted.identity_files.items():
        linux.mount(source, target, None, linux.MS_BIND)
    # Without a pid namespace the host's /proc stays; the settings there are held by permissions.
    sealing.seal(writable if pid_namespace else [*writable, "/proc"])
    if pid_namespace:
        _own_proc()
    ipc.bound()
    _own_terminals(wanted.terminals)
    if _is_directory("/dev/shm"):  # noqa: S108
        size = wanted.shm_bytes
        linux.mount("shm", "/dev/shm", "tmpfs", _SAFE, f"size={size},mode=1777")  # noqa: S108
    # The host's mqueue mount shows the queues of the host's ipc namespace.
    if os.path.ismount("/dev/mqueue"):
        linux.mount("mqueue", "/dev/mqueue", "mqueue", _SAFE | linux.MS_NOEXEC)
    for target in _HIDDEN_AT_BASIC:
        if _is_directory(target):
            _hide(target)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _hide(path: str) -> None:
    """Cover a directory by an empty read-only tmpfs."""
    flags = _SAFE | linux.MS_NOEXEC | linux.MS_RDONLY
    linux.mount("none", path, "tmpfs", flags, "mode=0555,size=4k")


def _own_terminals(most: int) -> None:
    """Mount a new devpts instance that holds no terminals of other executions.

    most: how many terminals may be open, of those that the host allows (filesystems/devpts.rst); 0
    = none.
    """
    if os.path.isdir("/dev/pts"):
        mode = "0666" if most > 0 else "0000"
        data = f"newinstance,ptmxmode={mode},mode=0600,max={max(1, most)}"
        linux.mount("devpts", "/dev/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, data)


def _keep_own_disk(wanted: HostRoot) -> None:
    """Drop the mounts of all other sandboxes' disks from this mount namespace.

    A copied mount would keep a disk in use after the sandbox's release. The own disk is moved by
    way of the record directory, which no other process uses.
    """
    root, own = wanted.disks_root, os.path.dirname(wanted.tmp_directory)
    between = wanted.record_directory
    if os.path.dirname(own) != root:
        _forget(root)
        return
    linux.mount(own, between, None, linux.MS_BIND)
    _forget(root)
    linux.mount("disks", root, "tmpfs", _SAFE | linux.MS_NOEXEC, "mode=0711,size=4k")
    os.mkdir(own, 0o711)
    linux.mount(between, own, None, linux.MS_MOVE)


def _forget(root: str) -> None:
    """Unmount `root` here, if mounted: a copy would keep the mounts of other sandboxes."""
    try:
        linux.unmount(root)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOENT):
            raise


def stop_propagation() -> None:
    """Keep the mounts made here from reaching the host, and the host's from coming."""
    try:
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
    else:
        return
    # In a chroot `/` may be no mount point, and the mount below has no name there. Joining the
    # current namespace by setns(2) makes the namespace's root this process's root: there the mount
    # has a name.
    with (
        closing_fd(os.open("/", os.O_PATH | os.O_DIRECTORY)) as root,
        closing_fd(open_namespace("mnt")) as namespace,
    ):
        enter(namespace, "mnt")
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
        linux.change_root(root)
