# SPDX-License-Identifier: Apache-2.0
"""The mount namespace of one execution: its own /proc in every one of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from sandboxd.isolation import ipc, pins, sealing
from sandboxd.osutil import linux

_SAFE = linux.MS_NOSUID | linux.MS_NODEV
_NAMESPACES = {
    pins.NET: linux.CLONE_NEWNET,
    pins.IPC: linux.CLONE_NEWIPC,
    pins.UTS: linux.CLONE_NEWUTS,
    pins.MNT: linux.CLONE_NEWNS,
}
# What /proc tells of the kernel and of others on the host, and no program needs.
_MASKED_FILES = (
    "buddyinfo", "config.gz", "diskstats", "interrupts", "iomem", "ioports", "kallsyms", "kcore",
    "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats",
    "locks", "modules", "pagetypeinfo", "sched_debug", "schedstat", "slabinfo", "softirqs",
    "sysrq-trigger", "timer_list", "timer_stats", "vmallocinfo", "zoneinfo",
)  # fmt: skip
_MASKED_DIRECTORIES = ("acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "scsi")

# Where a sandbox has nothing to do: the system bus, whose connections before they say who they are
# come out of one number for all users (dbus-daemon(1), max_incomplete_connections), and the names
# and usage of other sandboxes.
_HIDDEN_AT_BASIC = ("/run/dbus", "/var/run/dbus", "/sys/fs/cgroup")


def join(directory: str, kinds: Iterable[str]) -> None:
    """Enter a sandbox's pinned namespaces, its mount namespace (and so its root) last.

    Raises OSError: ENOENT or EINVAL where a pin is missing.
    """
    # The paths are gone once the root is another one.
    opened = [
        (kind, os.open(os.path.join(directory, kind), os.O_RDONLY | os.O_CLOEXEC)) for kind in kinds
    ]
    for kind, fd in opened:
        linux.setns(fd, _NAMESPACES[kind])
        os.close(fd)


def in_own_root(
    *, pid_namespace: bool, masked: bool, refresh: Callable[[], None], terminals: int
) -> None:
    """A mount namespace beside the sandbox's, which this process has joined, with its own /proc.

    masked: the kernel's own information is out of sight. refresh: has the root's overlays show
    what has changed on the host; needs /proc. terminals: how many may be open.
    """
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    if pid_namespace:
        _own_proc()
        refresh()
        if masked:
            _mask()
    _own_terminals(terminals)


def _own_proc() -> None:
    """Without the shim, which has the host's namespaces: to whoever sees a process /proc/PID/net
    and /proc/PID/mountinfo tell its network and mounts, whatever their uids (proc(5))."""
    linux.mount("proc", "/proc", "proc", _SAFE | linux.MS_NOEXEC, "hidepid=2")


def _mask() -> None:
    for name in _MASKED_FILES:
        # Kernels differ in what they have.
        with suppress(FileNotFoundError):
            linux.mount("/dev/null", f"/proc/{name}", None, linux.MS_BIND)
    for name in _MASKED_DIRECTORIES:
        with suppress(FileNotFoundError):
            _hide(f"/proc/{name}")
    flags = _SAFE | linux.MS_NOEXEC | linux.MS_RDONLY
    linux.mount("/proc/sys", "/proc/sys", None, linux.MS_BIND | linux.MS_REC)
    linux.mount("none", "/proc/sys", None, linux.MS_BIND | linux.MS_REMOUNT | flags)


def in_host_root(spec: dict[str, Any]) -> None:
    """A mount and ipc namespace of the execution's own: nothing of the host's can be written, no
    shared memory and no System V object outlives it, and /proc shows its own pid namespace."""
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWIPC)
    stop_propagation()
    _forget(spec["pins_root"])
    _keep_own_disk(spec)
    own = os.path.dirname(spec["tmp_dir"])
    linux.mount(own, own, None, linux.MS_BIND | linux.MS_REC)
    writable = [own]
    for target in ("/tmp", "/var/tmp"):  # noqa: S108 - the mount points, not files in them
        if _is_directory(target):
            linux.mount(spec["tmp_dir"], target, None, linux.MS_BIND)
            writable.append(target)
    for target, source in spec["files"].items():
        linux.mount(source, target, None, linux.MS_BIND)
    # The host's settings, where there is no other /proc to have: by its own permissions.
    sealing.seal(writable if spec["pid_namespace"] else [*writable, "/proc"])
    if spec["pid_namespace"]:
        _own_proc()
    ipc.bound()
    _own_terminals(spec["terminals"])
    if _is_directory("/dev/shm"):  # noqa: S108
        size = spec["shm_bytes"]
        linux.mount("shm", "/dev/shm", "tmpfs", _SAFE, f"size={size},mode=1777")  # noqa: S108
    # The host's queues, where they are mounted, are those of its own ipc namespace.
    if os.path.ismount("/dev/mqueue"):
        linux.mount("mqueue", "/dev/mqueue", "mqueue", _SAFE | linux.MS_NOEXEC)
    for target in _HIDDEN_AT_BASIC:
        if _is_directory(target):
            _hide(target)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _hide(path: str) -> None:
    """Cover a directory by an empty one."""
    flags = _SAFE | linux.MS_NOEXEC | linux.MS_RDONLY
    linux.mount("none", path, "tmpfs", flags, "mode=0555,size=4k")


def _own_terminals(most: int) -> None:
    """A devpts of the execution's own: nobody else's terminals are in it, and it takes no more of
    the host's than its bound (filesystems/devpts.rst). Where that is 0 none can be opened."""
    if os.path.isdir("/dev/pts"):
        mode = "0666" if most > 0 else "0000"
        data = f"newinstance,ptmxmode={mode},mode=0600,max={max(1, most)}"
        linux.mount("devpts", "/dev/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, data)


def _keep_own_disk(spec: dict[str, Any]) -> None:
    """Let go of all other sandboxes' disks, by way of a directory that nobody else has: our copy
    of their mounts would keep them after their release."""
    root, tmp = spec["disks_root"], spec["tmp_dir"]
    own, between = os.path.dirname(tmp), spec["record_directory"]
    if os.path.dirname(own) != root:
        _forget(root)
        return
    linux.mount(own, between, None, linux.MS_BIND)
    _forget(root)
    linux.mount("disks", root, "tmpfs", _SAFE | linux.MS_NOEXEC, "mode=0711,size=4k")
    os.mkdir(own, 0o711)
    linux.mount(between, own, None, linux.MS_MOVE)


def _forget(root: str) -> None:
    """Our copy of what is mounted there would keep others' namespaces, or disks."""
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
    # In a chroot `/` may be no mount point, and the mount it lies in has no name there. Joining
    # the namespace we are in makes the namespace's own root ours (setns(2)): from there it has.
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    linux.setns(namespace, linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    os.fchdir(root)
    os.chroot(".")
    os.close(namespace)
    os.close(root)
