# SPDX-License-Identifier: Apache-2.0
"""System calls on files that Python 3.11 has no name for. Constants: Linux uapi headers."""

from __future__ import annotations

import ctypes
import os

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

RENAME_NOREPLACE = 1

CAP_DAC_OVERRIDE = 1
CAP_SETGID = 6
CAP_SETUID = 7

# The same on every architecture: added after the tables were unified.
_OPENAT2 = 437

_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def _check(result: int, path: bytes | None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


def openat2(directory: int, path: bytes, flags: int, *, resolve: int, mode: int = 0) -> int:
    """openat2(2), close-on-exec; raises OSError."""
    how = _How(flags | os.O_CLOEXEC, mode, resolve)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    name = ctypes.c_char_p(path)
    arguments = (ctypes.c_long(_OPENAT2), ctypes.c_long(directory), name, ctypes.byref(how), size)
    return _check(_libc.syscall(*arguments), path)


def rename_new(source: int, name: bytes, target: int, new_name: bytes) -> None:
    """renameat2(2) that replaces nothing; raises OSError."""
    flags = ctypes.c_uint(RENAME_NOREPLACE)
    _check(_libc.renameat2(source, name, target, new_name, flags), new_name)


def act_as(uid: int) -> None:
    """Touch files as `uid`, in this thread alone (setfsuid(2): the C library's is per thread)."""
    _libc.setfsgid(uid)
    _libc.setfsuid(uid)


def keep_capabilities(*kept: int) -> None:
    """Give up all but `kept` in this thread, for good; those are in force (capset(2))."""
    mask = sum(1 << number for number in kept)
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable, first of capabilities 0-31, then of the others.
    data = (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(data)), None)
