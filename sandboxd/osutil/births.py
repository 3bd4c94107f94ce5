# SPDX-License-Identifier: Apache-2.0
"""A fork whose child is born in a cgroup: clone3(2) with CLONE_INTO_CGROUP, Linux 5.7.

A process that moves into a cgroup waits for an RCU grace period, which takes longer than the fork
(kernel/cgroup/cgroup.c: cgroup_threadgroup_rwsem); a birth there does not.
"""

from __future__ import annotations

import ctypes
import signal

from sandboxd.osutil.libc import checked

# One number on every machine.
_CLONE3 = 435
_CLONE_INTO_CGROUP = 0x200000000

# The interpreter's lock is kept during the call: the child must find it as its own.
_libc = ctypes.PyDLL(None, use_errno=True)
_FIELDS = (
    "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls",
    "set_tid", "set_tid_size", "cgroup",
)  # fmt: skip


class _CloneArguments(ctypes.Structure):
    """struct clone_args, linux/sched.h."""

    _fields_ = [(name, ctypes.c_uint64) for name in _FIELDS]


def fork_into(cgroup: int) -> int:
    """Fork as os.fork does, the child in a cgroup; return the child's pid, 0 in the child.

    cgroup: descriptor of the directory. For a process of one thread alone. Raises OSError: ENOSYS
    where the kernel or a filter knows no clone3, else what cgroups(7) says of a move.
    """
    arguments = _CloneArguments(
        flags=_CLONE_INTO_CGROUP, exit_signal=int(signal.SIGCHLD), cgroup=cgroup
    )
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    # What os.fork does around its system call (Modules/posixmodule.c).
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _libc.syscall(ctypes.c_long(_CLONE3), ctypes.byref(arguments), size)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    number = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    ctypes.set_errno(number)
    return checked(pid, "clone3")
