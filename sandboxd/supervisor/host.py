# SPDX-License-Identifier: Apache-2.0
"""What this host lets a supervisor do: tried, recorded, never required."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sandboxd.osutil.descriptors import allow_most
from sandboxd.osutil.files import write_text
from sandboxd.osutil.libc import libc
from sandboxd.osutil.privileges import Privileges
from sandboxd.osutil.processes import set_oom_score_adj
from sandboxd.supervisor.files import sees_mapped

_CAP_SYS_PTRACE = 19
_CAP_SYS_ADMIN = 21
_CAP_SYS_RESOURCE = 24
_MCL_CURRENT_AND_FUTURE = 3


@dataclass(frozen=True, slots=True)
class Abilities:
    """The supervisor's features on this host; missing: in words, features that are unavailable."""

    processors: int
    reads_io: bool
    sees_shared: bool
    sees_mapped: bool
    measures_exactly: bool
    changes_rlimits: bool
    scheduling: str
    missing: tuple[str, ...]


def prepare(privileges: Privileges) -> Abilities:
    """Raise the supervisor's priority and memory protection, and return the features found."""
    missing: list[str] = []
    scheduling = _get_ahead(missing)
    _be_spared(missing, privileges)
    allow_most()
    # Processes of our own uid may be read without (ptrace(2), PTRACE_MODE_READ).
    is_root = privileges.is_root
    may_read = not is_root or privileges.has(_CAP_SYS_PTRACE)
    may_enter = not is_root or privileges.has(_CAP_SYS_ADMIN)
    may_change = not is_root or privileges.has(_CAP_SYS_RESOURCE)
    if not may_read:
        missing.append(
            "CAP_SYS_PTRACE: no IO limits; memory that a process may share with its parent, "
            "memfds and files in /dev/shm do not count"
        )
    if not may_enter:
        missing.append("CAP_SYS_ADMIN: System V segments do not count")
    may_map = may_read and may_enter and sees_mapped()
    if is_root and may_read and may_enter and not may_map:
        missing.append(
            "CAP_SYS_ADMIN of the host: shared mappings and memfds count as far as they are "
            "resident or open"
        )
    if not may_change:
        missing.append("CAP_SYS_RESOURCE: running processes keep their limit of processes")
    return Abilities(
        processors=len(os.sched_getaffinity(0)),
        reads_io=may_read,
        sees_shared=may_read and may_enter,
        sees_mapped=may_map,
        measures_exactly=may_read,
        changes_rlimits=may_change,
        scheduling=scheduling,
        missing=tuple(missing),
    )


def _get_ahead(missing: list[str]) -> str:
    """Raise the priority: a look must not wait behind the processes to stop (sched(7))."""
    try:
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))
    except PermissionError:
        missing.append("real-time scheduling: looks come late on a busy host")
    else:
        return "real-time"
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
        write_text("/proc/self/autogroup", "-15")
    except (PermissionError, FileNotFoundError):
        return "normal"
    return "nice -15"


def _be_spared(missing: list[str], privileges: Privileges) -> None:
    """Protect the supervisor from the OOM killer and from page faults."""
    try:
        set_oom_score_adj(-1000)
    except PermissionError:
        missing.append("oom_score_adj: the host's OOM killer may take the supervisor")
    # For a user without CAP_IPC_LOCK, RLIMIT_MEMLOCK would bound all later memory (mlockall(2)).
    if privileges.is_root:
        libc.mlockall(_MCL_CURRENT_AND_FUTURE)
