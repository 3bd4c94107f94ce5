# SPDX-License-Identifier: Apache-2.0
"""Counters of cgroup v2 (kernel: Documentation/admin-guide/cgroup-v2.rst). Standard library only.

A file that this kernel lacks gives None, never 0: unknown is not zero.
"""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"


def own_cgroup(proc_file: str = "/proc/self/cgroup") -> str | None:
    """Return a process's path below the unified hierarchy, from /proc/PID/cgroup; None on v1."""
    with open(proc_file, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].rstrip("\n")
    return None


def read_text(directory: str, name: str) -> str | None:
    """Return an attribute's text; None where the kernel or the cgroup lacks the attribute."""
    try:
        with open(os.path.join(directory, name), encoding="ascii") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        # kernfs answers ENODEV for a cgroup removed since the open.
        if exc.errno == 19:
            return None
        raise


def read_number(directory: str, name: str) -> int | None:
    """Return an attribute's number; None for "max" and for a missing attribute."""
    text = read_text(directory, name)
    return int(text) if text is not None and text.strip().isdigit() else None


def read_keys(directory: str, name: str) -> dict[str, int] | None:
    """Return a flat-keyed attribute such as memory.events; None where missing."""
    text = read_text(directory, name)
    return None if text is None else parse_keys(text)


def parse_keys(text: str) -> dict[str, int]:
    """Parse the text of a flat-keyed attribute."""
    pairs = (line.split() for line in text.splitlines())
    return {key: int(value) for key, value in pairs}


def read_io(directory: str) -> dict[str, int] | None:
    """Return rbytes and wbytes of io.stat summed over devices; None without io.stat."""
    text = read_text(directory, "io.stat")
    if text is None:
        return None
    total = {"rbytes": 0, "wbytes": 0}
    for line in text.splitlines():
        for field in line.split()[1:]:
            key, _, value = field.partition("=")
            if key in total:
                total[key] += int(value)
    return total


def key(directory: str, name: str, field: str) -> int | None:
    """Return a field of a flat-keyed attribute; None where missing."""
    keys = read_keys(directory, name)
    return None if keys is None else keys.get(field)


def ancestors(scope: str, path: str) -> tuple[str, str]:
    """Return the cgroups above a scope of this `path`: the sandbox's, and that of all sandboxes."""
    first = path.partition("/")[0]
    return os.path.dirname(scope), scope.removesuffix(path) + first


def baseline(scope: str, path: str) -> dict[str, int | None]:
    """Return counters of the cgroups above before an execution starts, to compare with `final`."""
    sandbox, aggregate = ancestors(scope, path)
    return {
        "sandbox_oom": key(sandbox, "memory.events.local", "oom"),
        "aggregate_oom": key(aggregate, "memory.events.local", "oom"),
        "sandbox_pids_max": key(sandbox, "pids.events.local", "max"),
        "aggregate_pids_max": key(aggregate, "pids.events.local", "max"),
    }


def final(scope: str, path: str) -> dict[str, int | None]:
    """Return all counters of a scope and of the cgroups above, while the scope still exists."""
    memory = read_keys(scope, "memory.events") or {}
    cpu = read_keys(scope, "cpu.stat") or {}
    io = read_io(scope) or {}
    return {
        **baseline(scope, path),
        "oom": memory.get("oom"),
        "oom_kill": memory.get("oom_kill"),
        "memory_peak_bytes": read_number(scope, "memory.peak"),
        "pids_max": key(scope, "pids.events", "max"),
        "pids_peak": read_number(scope, "pids.peak"),
        "pids_limit": read_number(scope, "pids.max"),
        "cpu_usec": cpu.get("usage_usec"),
        "cpu_user_usec": cpu.get("user_usec"),
        "cpu_system_usec": cpu.get("system_usec"),
        "cpu_throttled_usec": cpu.get("throttled_usec"),
        "io_read_bytes": io.get("rbytes"),
        "io_written_bytes": io.get("wbytes"),
    }
