# SPDX-License-Identifier: Apache-2.0
"""Namespaces of processes, by the files of /proc/PID/ns (namespaces(7))."""

from __future__ import annotations

import os

from sandboxd.osutil import linux

_KINDS = {
    "ipc": linux.CLONE_NEWIPC,
    "mnt": linux.CLONE_NEWNS,
    "net": linux.CLONE_NEWNET,
    "pid": linux.CLONE_NEWPID,
    "uts": linux.CLONE_NEWUTS,
}


def namespace_path(kind: str, pid: int | None = None) -> str:
    """Return the path of a process's namespace. pid: None = this process."""
    return f"/proc/{'self' if pid is None else pid}/ns/{kind}"


def open_namespace(kind: str, pid: int | None = None) -> int:
    """Return a descriptor that keeps the namespace. pid: None = this process. Raises OSError."""
    return os.open(namespace_path(kind, pid), os.O_RDONLY | os.O_CLOEXEC)


def namespace_number(kind: str, pid: int | None = None) -> int:
    """Return the number that tells the namespace apart. Raises OSError."""
    return os.stat(namespace_path(kind, pid)).st_ino


def enter(namespace: int, kind: str) -> None:
    """Have this process join an open namespace; of "pid", its next children. Raises OSError."""
    linux.setns(namespace, _KINDS[kind])
