# SPDX-License-Identifier: Apache-2.0
"""The descriptor tables of a process.

/proc/PID/fd shows the main thread's table, which is empty once that thread has ended while more
threads run; and a thread may have been made with a table of its own (clone(2), CLONE_FILES).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from sandboxd.osutil.libc import libc

# kcmp(2): whether two tasks share a table. Numbers: asm/unistd.h.
_KCMP = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine, -1)
_KCMP_FILES = 2
# Each thread is compared with so many threads; beyond, a table may be yielded twice.
_COMPARED = 8


def descriptor_tables(pid: int) -> Iterator[int]:
    """Yield a thread for each table; the descriptors, if any, are in /proc/NUMBER/fd.

    Raises FileNotFoundError or ProcessLookupError when the process is gone. Without CAP_SYS_PTRACE,
    and in kernels without kcmp, yields every thread.
    """
    given: list[int] = []
    with os.scandir(f"/proc/{pid}/task") as tasks:
        for task in tasks:
            number = int(task.name)
            if not any(_have_one(number, other) for other in given):
                if len(given) < _COMPARED:
                    given.append(number)
                yield number


def _have_one(one: int, other: int) -> bool:
    return _KCMP >= 0 and libc.syscall(_KCMP, one, other, _KCMP_FILES, 0, 0) == 0
