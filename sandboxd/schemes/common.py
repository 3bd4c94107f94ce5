# SPDX-License-Identifier: Apache-2.0
"""What holds an execution the same way under every scheme: its rlimits and its shim."""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping

from sandboxd.core.limits import LIMITS
from sandboxd.core.model import EnforcedBy, Enforcement, Limits

_INFINITY = resource.RLIM_INFINITY
# The kernel's own defaults for a fresh login (include/uapi/linux/resource.h and mqueue.h): they
# are set by name, since the daemon's own may have been raised by its service manager.
_STACK_BYTES = 8 << 20
_LOCKED_BYTES = 8 << 20
_MESSAGE_QUEUE_BYTES = 819200
# core(5): 0 does not hold where the host pipes core files to a program, which the kernel starts as
# the host's root outside of every limit; 1 does (fs/coredump.c).
_NO_CORE = (1, 1)
# A uid's queued signals and timers together, of at most half a kilobyte each. The kernel's own
# default is half of what the host may have of threads.
_QUEUED_SIGNALS = 16384
_MIB = 1 << 20
# Runtimes need room beside their heaps.
_HEAP_SHARE = 0.75


def rlimits(limits: Limits) -> dict[str, tuple[int, int]]:
    """resource-module name -> (soft, hard) that every command gets."""
    values = {limit.rlimit: getattr(limits, limit.name) for limit in LIMITS if limit.rlimit}
    return {
        **{name: (value, value) for name, value in values.items()},
        "RLIMIT_CORE": _NO_CORE,
        "RLIMIT_STACK": (_STACK_BYTES, _INFINITY),
        "RLIMIT_NPROC": (_INFINITY, _INFINITY),
        "RLIMIT_MEMLOCK": (_LOCKED_BYTES, _LOCKED_BYTES),
        "RLIMIT_MSGQUEUE": (_MESSAGE_QUEUE_BYTES, _MESSAGE_QUEUE_BYTES),
        "RLIMIT_SIGPENDING": (_QUEUED_SIGNALS, _QUEUED_SIGNALS),
        "RLIMIT_NICE": (0, 0),
        "RLIMIT_RTPRIO": (0, 0),
    }


def enforcement() -> Mapping[str, Enforcement]:
    """Who holds the limits that no cgroup and no supervisor is needed for. The disk's holder is the
    workspace's to say."""
    shim = EnforcedBy.SUPERVISOR
    kernel = EnforcedBy.KERNEL
    return {
        "timeout_seconds": Enforcement(
            shim, "the execution's shim, by its own clock", "within 0.1 s"
        ),
        "cpu_seconds": Enforcement(
            shim, "the execution's shim, from its counters", "looked at 10 times a second"
        ),
        "max_output_bytes": Enforcement(
            shim, "the execution's shim, which copies the output", "to the byte"
        ),
        "open_files": Enforcement(kernel, "RLIMIT_NOFILE of each process"),
        "file_size_bytes": Enforcement(kernel, "RLIMIT_FSIZE of each file"),
    }


def hints(limits: Limits) -> Mapping[str, str]:
    """For runtimes that else size themselves by the host's memory and processors, since no cgroup
    tells them better: all there are, of which a setting chooses. A caller's own go before these."""
    heap_mib = max(16, int(limits.memory_bytes * _HEAP_SHARE) // _MIB)
    return {
        "JDK_JAVA_OPTIONS": f"-XX:MaxRAM={limits.memory_bytes}",
        "JAVA_TOOL_OPTIONS": f"-XX:MaxRAM={limits.memory_bytes}",
        "NODE_OPTIONS": f"--max-old-space-size={heap_mib}",
        "GOMEMLIMIT": f"{heap_mib}MiB",
        "GOMAXPROCS": str(max(1, math.ceil(limits.cpus))),
    }
