# SPDX-License-Identifier: Apache-2.0
"""What this host's cgroups are: hierarchy, controllers, and how much memory is above us."""

from __future__ import annotations

import ctypes
import enum
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sandboxd.cgroup.counters import ROOT, read_number, read_text
from sandboxd.core.remedies import Place
from sandboxd.osutil.libc import libc

# include/uapi/linux/magic.h
_CGROUP2_SUPER_MAGIC = 0x63677270
_NEEDED = frozenset({"cpu", "io", "memory", "pids"})
# A v1 limit that nobody set reads as the largest page-aligned long.
_V1_UNLIMITED = 1 << 62


class Hierarchy(enum.StrEnum):
    """How cgroups are mounted."""

    UNIFIED = "unified"
    HYBRID = "hybrid"
    LEGACY = "legacy"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """The tightest bound on memory above us, and where it is set."""

    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class TasksBound:
    """The tightest bound on processes and threads together, and where it is set."""

    count: int
    source: str


def place(root: str = "/", environ: Mapping[str, str] = os.environ) -> Place:
    """What runs us, by the marks that each leaves; systemd-detect-virt(1) takes the same ones."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return Place.KUBERNETES
    if os.path.exists(os.path.join(root, "run/.containerenv")):
        return Place.PODMAN
    if os.path.exists(os.path.join(root, ".dockerenv")):
        return Place.DOCKER
    # What systemd as the container's first program was told, or any other first program.
    told = _read(os.path.join(root, "run/systemd/container"))
    first = _read(os.path.join(root, "proc/1/environ")).split("\0")
    names = [word.removeprefix("container=") for word in first if word.startswith("container=")]
    name = (told or next(iter(names), "")).strip()
    if not name:
        return Place.HOST
    return Place(name) if name in {Place.PODMAN, Place.DOCKER} else Place.CONTAINER


def _read(path: str) -> str:
    """A file's text; nothing where it is missing, or its kernel or owner keeps it from us."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def hierarchy(root: str = ROOT) -> Hierarchy:
    """By the file system's magic number, as systemd does."""
    if _magic(root) == _CGROUP2_SUPER_MAGIC:
        return Hierarchy.UNIFIED
    if _magic(os.path.join(root, "unified")) == _CGROUP2_SUPER_MAGIC:
        return Hierarchy.HYBRID
    try:
        mounted = bool(os.listdir(root))
    except OSError:
        # Not there, or not for us to read: nothing we could use.
        mounted = False
    return Hierarchy.LEGACY if mounted else Hierarchy.NONE


def missing_controllers(directory: str = ROOT) -> list[str]:
    """Those of cpu, io, memory and pids that a v2 cgroup does not have."""
    text = read_text(directory, "cgroup.controllers") or ""
    return sorted(_NEEDED - set(text.split()))


def kernel_version(release: str | None = None) -> tuple[int, int]:
    """(6, 12) for "6.12.43-amd64"."""
    match = re.match(r"(\d+)\.(\d+)", release or os.uname().release)
    if match is None:
        raise ValueError(f"not a kernel release: {release!r}")
    return int(match[1]), int(match[2])


def memory_bound(*, own: bool, proc: str = "/proc", root: str = ROOT) -> MemoryBound:
    """The tightest finite memory limit of cgroups, else MemTotal.

    own: commands stay below our own cgroup, and all from there up count; else only what is above
    every cgroup we see, as a container has it.
    """
    total = MemoryBound(memory_total(proc), "MemTotal of /proc/meminfo")
    text = _own_cgroups(proc)
    bounds = [total, *_unified_bounds(text, root, own=own), *_v1_bounds(text, proc, own=own)]
    return min(bounds, key=lambda bound: bound.bytes)


def tasks_bound(*, own: bool, proc: str = "/proc", root: str = ROOT) -> TasksBound:
    """The tightest finite bound on tasks: the kernel's two, and those of cgroups.

    own: commands stay below our own cgroup; else only what is above every cgroup we see counts, as
    a container has it.
    """
    bounds = []
    for name in ("threads-max", "pid_max"):
        count = read_number(os.path.join(proc, "sys/kernel"), name)
        if count is not None:
            bounds.append(TasksBound(count, f"kernel.{name}"))
    text = _own_cgroups(proc)
    for directory in _task_directories(text, proc, root, own=own):
        count = read_number(directory, "pids.max")
        if count is not None:
            bounds.append(TasksBound(count, os.path.join(directory, "pids.max")))
    return min(bounds, key=lambda bound: bound.count)


def terminals(proc: str = "/proc") -> int | None:
    """The pseudo-terminals that may be open outside of the host's own mount namespace, for which
    the kernel keeps some (sysctl/kernel.rst); None where it does not say."""
    most = read_number(os.path.join(proc, "sys/kernel/pty"), "max")
    kept = read_number(os.path.join(proc, "sys/kernel/pty"), "reserve")
    return None if most is None or kept is None else max(0, most - kept)


def _task_directories(text: str, proc: str, root: str, *, own: bool) -> Iterator[str]:
    unified = _unified_path(text)
    if unified is not None:
        yield from _upwards(root, unified if own else "")
    legacy = _v1_place(text, proc, "pids")
    if legacy is not None:
        mount_point, path = legacy
        yield from _upwards(mount_point, path if own else "")


def memory_total(proc: str = "/proc") -> int:
    """MemTotal in bytes."""
    with open(os.path.join(proc, "meminfo"), encoding="ascii") as file:
        for line in file:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    raise ValueError(f"{proc}/meminfo has no MemTotal")


def _unified_bounds(text: str, root: str, *, own: bool) -> Iterator[MemoryBound]:
    path = _unified_path(text)
    if path is None:
        return
    for directory in _upwards(root, path if own else ""):
        limit = read_number(directory, "memory.max")
        if limit is not None:
            yield MemoryBound(limit, os.path.join(directory, "memory.max"))


def _v1_bounds(text: str, proc: str, *, own: bool) -> Iterator[MemoryBound]:
    place = _v1_place(text, proc, "memory")
    if place is None:
        return
    mount_point, path = place
    for directory in _upwards(mount_point, path if own else ""):
        limit = read_number(directory, "memory.limit_in_bytes")
        if limit is not None and limit < _V1_UNLIMITED:
            yield MemoryBound(limit, os.path.join(directory, "memory.limit_in_bytes"))


def _own_cgroups(proc: str) -> str:
    """Names of cgroups are bytes."""
    path = os.path.join(proc, "self/cgroup")
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _unified_path(text: str) -> str | None:
    """Our own cgroup of version 2, by the text of /proc/self/cgroup."""
    return next((line[3:] for line in text.splitlines() if line.startswith("0::")), None)


def _v1_place(text: str, proc: str, controller: str) -> tuple[str, str] | None:
    """Where a v1 controller is mounted, and our own cgroup's path below."""
    path = None
    for line in text.splitlines():
        _, controllers, own = line.split(":", 2)
        if controller in controllers.split(","):
            path = own
    mount = None if path is None else _v1_mount(proc, controller)
    if path is None or mount is None:
        return None
    mount_root, mount_point = mount
    # In a container the mount may show only our own part of the hierarchy.
    if mount_root != "/":
        path = path.removeprefix(mount_root)
    return mount_point, path


def _v1_mount(proc: str, controller: str) -> tuple[str, str] | None:
    """(root, mount point) of a v1 controller: proc_pid_mountinfo(5)."""
    path = os.path.join(proc, "self/mountinfo")
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            # The source in between may be empty.
            kind, options = right.split(" ")[0], right.rstrip("\n").split(" ")[-1]
            if kind == "cgroup" and controller in options.split(","):
                fields = left.split()
                return fields[3], fields[4]
    return None


def _upwards(top: str, path: str) -> Iterator[str]:
    """The directories from `top`/`path` up to `top`; those that are not visible give nothing."""
    relative = path.strip("/")
    while relative:
        yield os.path.join(top, relative)
        relative = os.path.dirname(relative)
    yield top


def _magic(path: str) -> int | None:
    """f_type of statfs(2), which the standard library does not have; None where it fails."""
    buffer = ctypes.create_string_buffer(256)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        return None
    return ctypes.c_long.from_buffer(buffer).value
