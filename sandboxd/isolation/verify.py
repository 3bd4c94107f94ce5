# SPDX-License-Identifier: Apache-2.0
"""The parent's check that a started command gave up all privileges."""

from __future__ import annotations

from sandboxd.osutil.labels import read_label, read_labels
from sandboxd.osutil.namespaces import namespace_number
from sandboxd.osutil.privileges import Privileges
from sandboxd.osutil.processes import GONE

_SECCOMP_FILTER = "2"
_CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def host_pid(pidfd: int) -> int:
    """Return the process's pid in the mounted /proc (proc_pid_fdinfo(5)); -1 when gone."""
    return int(read_label(f"/proc/self/fdinfo/{pidfd}", "Pid") or -1)


def _status(pid: str) -> dict[str, str]:
    return read_labels(f"/proc/{pid}/status")


def peak_bytes(pid: int) -> int | None:
    """Return the peak resident memory since the exec, in bytes; None once the process has ended."""
    try:
        text = _status(str(pid)).get("VmHWM")
    except GONE:
        return None
    # In the middle of an exec the status has no VmHWM.
    return None if text is None else int(text.split()[0]) * 1024 or None


def _has_filter_of_its_own(status: dict[str, str]) -> bool:
    """Whether seccomp is 2 (a filter), with more filters than this process has.

    sandboxd may run in a container, under a filter. Seccomp_filters came with Linux 5.9
    (proc_pid_status(5)).
    """
    if status["Seccomp"] != _SECCOMP_FILTER:
        return False
    if "Seccomp_filters" not in status:
        return True
    return int(status["Seccomp_filters"]) > int(_status("self")["Seccomp_filters"])


def _has_own_user_namespace(pid: int) -> bool:
    """Whether the process has made a user namespace since the exec.

    Only an unfiltered process can. Capabilities hold inside the new namespace alone, and there is
    no way back (user_namespaces(7)).
    """
    try:
        return namespace_number("user", pid) != namespace_number("user")
    except FileNotFoundError:
        return False


def privileges_left(pid: int, uid: int | None, own: Privileges, *, is_filtered: bool) -> str | None:
    """Return, in words, a privilege that a command must not have; None when there is none.

    uid: the uid the command must have, None where the daemon itself is unprivileged. own: of this
    process. is_filtered: whether the command's system calls must be filtered.
    """
    status = _status(str(pid))
    if status["NoNewPrivs"] != "1":
        return "no_new_privs is not set"
    if is_filtered and not _has_filter_of_its_own(status):
        return "its system calls are not filtered"
    wanted = str(own.uid if uid is None else uid)
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
