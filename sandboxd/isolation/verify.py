# SPDX-License-Identifier: Apache-2.0
"""The parent's check that a started command really gave everything up."""

from __future__ import annotations

import os

_SECCOMP_FILTER = "2"
_CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def host_pid(pidfd: int) -> int:
    """The process' pid in the namespace of the mounted /proc (proc_pid_fdinfo(5)); -1 when gone."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1


def _status(pid: str) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def peak_bytes(pid: int) -> int | None:
    """The most a process had of resident memory since its exec; None once it has ended."""
    try:
        text = _status(str(pid)).get("VmHWM")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # In the middle of its exec it has none yet.
    return None if text is None else int(text.split()[0]) * 1024 or None


def _has_filter_of_its_own(status: dict[str, str]) -> bool:
    """Seccomp is 2 (a filter), and it has more of them than we, who may live in a container.

    Seccomp_filters came with Linux 5.9 (proc_pid_status(5)).
    """
    if status["Seccomp"] != _SECCOMP_FILTER:
        return False
    if "Seccomp_filters" not in status:
        return True
    return int(status["Seccomp_filters"]) > int(_status("self")["Seccomp_filters"])


def _has_own_user_namespace(pid: int) -> bool:
    """Whether it has made one since its exec, as only an unfiltered one can: its capabilities hold
    in there alone, and there is no way back to ours (user_namespaces(7))."""
    try:
        return os.stat(f"/proc/{pid}/ns/user").st_ino != os.stat("/proc/self/ns/user").st_ino
    except FileNotFoundError:
        return False


def privileges_left(pid: int, uid: int | None, *, is_filtered: bool) -> str | None:
    """What a command still has that it must not have, in words; None when nothing.

    uid: the uid it must have, None where the daemon itself is unprivileged. is_filtered: its
    system calls must be.
    """
    status = _status(str(pid))
    if status["NoNewPrivs"] != "1":
        return "no_new_privs is not set"
    if is_filtered and not _has_filter_of_its_own(status):
        return "its system calls are not filtered"
    wanted = str(os.getuid() if uid is None else uid)
    for key in ("Uid", "Gid") if uid is not None else ("Uid",):
        if status[key].split() != [wanted] * 4:
            return f"{key} is {status[key]!r}, not {wanted} four times"
    if uid is None:
        return None
    for key in _CAPABILITY_SETS:
        if int(status[key], 16) != 0 and (is_filtered or not _has_own_user_namespace(pid)):
            return f"{key} is {status[key]}"
    if status.get("Groups", "").split():
        return f"groups are {status['Groups']!r}"
    return None
