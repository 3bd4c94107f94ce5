# SPDX-License-Identifier: Apache-2.0
"""Bounds of an ipc namespace on System V semaphores and message queues.

Both are kernel memory, which no resident set shows, no rlimit holds and no cgroup is charged for
before Linux 5.15. By the kernel's bounds a namespace may take 64 GiB (sem: 32000 sets of 32000, 64
bytes each) and 32 GiB (msgmni: 32000 queues of 16384 empty messages).
"""

from __future__ import annotations

import errno

from sandboxd.osutil.files import write_text

# proc_sys_kernel(5). sem: in a set, in all, operations at once, sets.
_BOUNDS = {"sem": "250 32000 100 128", "msgmni": "32"}
# A kernel without System V IPC, or a host whose /proc/sys is read-only.
_LACKS = (errno.ENOENT, errno.EROFS, errno.EACCES, errno.EPERM)


def bound() -> None:
    """Bound the ipc namespace that this process is in, as far as the host lets us."""
    for name, value in _BOUNDS.items():
        try:
            write_text(f"/proc/sys/kernel/{name}", value)
        except OSError as exc:
            if exc.errno not in _LACKS:
                raise
