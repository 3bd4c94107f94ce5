# SPDX-License-Identifier: Apache-2.0
"""System calls that Python 3.11 lacks: namespaces, mounts, privileges, files below a directory.

Constants: Linux uapi headers.
"""

from __future__ import annotations

import ctypes
import errno
import os

from sandboxd.osutil.libc import checked, libc

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_NOATIME = 0x400
MS_NODIRATIME = 0x800
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_RELATIME = 0x200000
MOUNT_ATTR_RDONLY = 0x1
_MOUNT_ATTR_IDMAP = 0x00100000

_MNT_DETACH = 0x2
_UMOUNT_NOFOLLOW = 0x8
# linux/fcntl.h; calls of this age have one number on every machine.
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_OPENAT2 = 437
_MOUNT_SETATTR = 442
# linux/mount.h
_OPEN_TREE_CLONE = 0x1
_MOVE_MOUNT_F_EMPTY_PATH = 0x4

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

CAP_DAC_OVERRIDE = 1
CAP_SETGID = 6
CAP_SETUID = 7

# Of keyctl(2), which the C library does not wrap; machines of the generic table have 219.
_KEYCTL_NUMBERS = {
    "x86_64": 250, "i686": 288, "armv7l": 311, "ppc64le": 271, "s390x": 280,
    "aarch64": 219, "riscv64": 219, "loongarch64": 219,
}  # fmt: skip
_KEYCTL_JOIN_SESSION_KEYRING = 1

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

_SECCOMP_MODE_FILTER = 2

# Read once: a command's own limit on open files may leave no descriptor for a later read.
with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as _file:
    _LAST_CAPABILITY = int(_file.read())


def unshare(flags: int) -> None:
    """Leave shared namespaces: unshare(2). Raises OSError."""
    checked(libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """Join a namespace: setns(2). Raises OSError."""
    checked(libc.setns(fd, kind), "setns")


def change_root(directory: int) -> None:
    """Make an open directory this process's root and working directory: chroot(2)."""
    os.fchdir(directory)
    os.chroot(".")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system: mount(2). Raises OSError with the target named."""
    checked(
        libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            data.encode() if data else None,
        ),
        f"mount {target}",
    )


class _MountAttributes(ctypes.Structure):
    """struct mount_attr."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd")]


def change_mounts(target: str, set_: int, clear: int, *, recursive: bool) -> None:
    """Change attributes of the mount at `target`, or of all mounts below too: mount_setattr(2).

    Raises OSError, ENOSYS before Linux 5.12.
    """
    attributes = _MountAttributes(set_, clear, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    _set_attributes(_AT_FDCWD, target, flags, attributes)


def map_owners(tree: int, user_namespace: int) -> None:
    """Map the owners of a detached tree by a user namespace, and make the tree private.

    mount_setattr(2). Raises OSError: EINVAL where a file system in the tree cannot, EPERM for a
    tree that is mapped already or may not be mapped by this process, ENOSYS before Linux 5.12.
    """
    attributes = _MountAttributes(_MOUNT_ATTR_IDMAP, 0, MS_PRIVATE, user_namespace)
    _set_attributes(tree, "", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes)


def _set_attributes(at: int, path: str, flags: int, attributes: _MountAttributes) -> None:
    result = libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR), ctypes.c_long(at), os.fsencode(path),
        ctypes.c_long(flags), ctypes.byref(attributes),
        ctypes.c_long(ctypes.sizeof(attributes)),
    )  # fmt: skip
    checked(result, f"mount_setattr {path}".rstrip())


def open_tree(path: str) -> int:
    """Return a detached copy of the mounts at and below `path`: open_tree(2).

    The copy goes with the descriptor. Raises OSError, ENOSYS before Linux 5.2.
    """
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    fd: int = libc.syscall(
        ctypes.c_long(_OPEN_TREE), ctypes.c_long(_AT_FDCWD), os.fsencode(path), ctypes.c_long(flags)
    )
    checked(min(fd, 0), f"open_tree {path}")
    return fd


def mount_tree(tree: int, target: str) -> None:
    """Attach a tree of open_tree at `target`: move_mount(2). Raises OSError."""
    result = libc.syscall(
        ctypes.c_long(_MOVE_MOUNT), ctypes.c_long(tree), b"", ctypes.c_long(_AT_FDCWD),
        os.fsencode(target), ctypes.c_long(_MOVE_MOUNT_F_EMPTY_PATH),
    )  # fmt: skip
    checked(result, f"move_mount {target}")


def unmount(target: str) -> None:
    """Detach the topmost mount at `target`: umount2(2). Raises OSError, EINVAL without a mount."""
    flags = _MNT_DETACH | _UMOUNT_NOFOLLOW
    checked(libc.umount2(os.fsencode(target), flags), f"umount {target}")


def _prctl(option: int, value: int, what: str) -> None:
    zero = ctypes.c_ulong(0)
    checked(libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), what)


def set_parent_death_signal(signal_number: int) -> None:
    """Set PR_SET_PDEATHSIG, which a change of uid clears again (prctl(2))."""
    _prctl(_PR_SET_PDEATHSIG, signal_number, "PR_SET_PDEATHSIG")


def become_subreaper() -> None:
    """Set PR_SET_CHILD_SUBREAPER."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def set_no_new_privs() -> None:
    """Set PR_SET_NO_NEW_PRIVS."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


_INSTRUCTION_BYTES = 8


def filter_calls(program: bytes) -> None:
    """Load a filter, an array of struct sock_filter: PR_SET_SECCOMP; needs no_new_privs or root."""
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    fprog = _Program(len(program) // _INSTRUCTION_BYTES, program)
    zero = ctypes.c_ulong(0)
    checked(libc.prctl(_PR_SET_SECCOMP, mode, ctypes.byref(fprog), zero, zero), "PR_SET_SECCOMP")


def can_filter_calls() -> bool:
    """Whether this kernel has seccomp filters: a null filter fails with EFAULT (prctl(2))."""
    mode, zero = ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.c_ulong(0)
    libc.prctl(_PR_SET_SECCOMP, mode, zero, zero, zero)
    return ctypes.get_errno() == errno.EFAULT


def leave_session_keyring() -> None:
    """Join a new, empty session keyring.

    The inherited keyring gives every process that has it the use of all keys, whatever the uid
    (keyrings(7)). A kernel without keys, or a filter that refuses the call, refuses the call to the
    command too.
    """
    number = _KEYCTL_NUMBERS.get(os.uname().machine)
    if number is None:
        return
    call, name = ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), ctypes.c_char_p(None)
    try:
        checked(libc.syscall(ctypes.c_long(number), call, name), "keyctl")
    except OSError as exc:
        if exc.errno not in (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP):
            raise


def drop_capability_bounding_set() -> None:
    """Empty the bounding and the ambient set; needs CAP_SETPCAP."""
    for capability in range(_LAST_CAPABILITY + 1):
        _prctl(_PR_CAPBSET_DROP, capability, "PR_CAPBSET_DROP")
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, "PR_CAP_AMBIENT")


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


_CAPABILITY_VERSION_3 = 0x20080522


def keep_capabilities(*kept: int) -> None:
    """Give up all capabilities of this thread but `kept`, for good. Raises OSError.

    kept: below 32, and effective afterwards (capset(2)).
    """
    mask = sum(1 << number for number in kept)
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable of capabilities 0-31, then of 32-63.
    data = (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)
    checked(libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")


def clear_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets (capset(2))."""
    keep_capabilities()


def act_as(uid: int) -> None:
    """Touch files as `uid`, in this thread alone (setfsuid(2): the C library's is per thread)."""
    libc.setfsgid(uid)
    libc.setfsuid(uid)


class _How(ctypes.Structure):
    """struct open_how."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


def openat2(directory: int, path: bytes, flags: int, *, resolve: int) -> int:
    """Open a file, close-on-exec: openat2(2). Raises OSError."""
    how = _How(flags | os.O_CLOEXEC, 0, resolve)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    name = ctypes.c_char_p(path)
    arguments = (ctypes.c_long(_OPENAT2), ctypes.c_long(directory), name, ctypes.byref(how), size)
    return checked(libc.syscall(*arguments), path=path)
