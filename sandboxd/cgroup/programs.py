# SPDX-License-Identifier: Apache-2.0
"""The BPF programs that the kernel runs for a cgroup: filters of addresses and devices.

systemd says only in the journal that a program could not be attached. Source: linux/bpf.h, bpf(2).
"""

from __future__ import annotations

import ctypes
import enum
import os

from sandboxd.osutil.descriptors import closing_fd, open_directory
from sandboxd.osutil.libc import libc

_BPF_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280,
                "ppc64le": 361, "s390x": 351}  # fmt: skip
_PROG_QUERY = 16
# Up to and with prog_attach_flags, as of Linux 6.1; older kernels refuse more unless zero.
_QUERY_BYTES = 40


class Hook(enum.IntEnum):
    """enum bpf_attach_type."""

    INGRESS = 0
    EGRESS = 1
    DEVICE = 6


class _Query(ctypes.Structure):
    """The part of union bpf_attr for BPF_PROG_QUERY.

    With room for fields that later kernels write behind, whatever size the call names (the list's
    revision, at byte 56).
    """

    _fields_ = [
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("query_flags", ctypes.c_uint32),
        ("attach_flags", ctypes.c_uint32),
        ("prog_ids", ctypes.c_uint64),
        ("prog_cnt", ctypes.c_uint32),
        ("room", ctypes.c_uint8 * 228),
    ]


def count(directory: str, hook: Hook) -> int | None:
    """Return how many programs are attached; None without cgroup BPF, or without CAP_NET_ADMIN."""
    number = _BPF_NUMBERS.get(os.uname().machine)
    if number is None:
        return None
    try:
        fd = open_directory(directory)
    except FileNotFoundError:
        return 0
    with closing_fd(fd):
        query = _Query(target_fd=fd, attach_type=hook)
        size = ctypes.c_uint(_QUERY_BYTES)
        done = libc.syscall(ctypes.c_long(number), _PROG_QUERY, ctypes.byref(query), size)
    return None if done < 0 else int(query.prog_cnt)
