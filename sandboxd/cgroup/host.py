# SPDX-License-Identifier: Apache-2.0
"""The host's cgroups: hierarchy, controllers, and the bounds above the daemon."""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sandboxd.cgroup.counters import ROOT, own_cgroup, read_number, read_text
from sandboxd.core.remedies import Environment
from sandboxd.osutil.labels import read_label
from sandboxd.osutil.libc import libc
from sandboxd.osutil.mountinfo import mounts

# include/uapi/linux/magic.h
_CGROUP2_SUPER_MAGIC = 0x63677270
_NEEDED = frozenset({"cpu", "io", "memory", "pids"})
# A v1 limit that was never set reads as the largest page-aligned long.
_V1_UNLIMITED = 1 << 62


class Hierarchy(enum.StrEnum):
    """How cgroups are mounted."""

    UNIFIED = "unified"
    HYBRID = "hybrid"
    LEGACY = "legacy"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Bound:
    """The tightest bound above the daemon, in bytes or tasks, and the file that sets the bound."""

    value: int
    source: str


def place(root: str = "/", environ: Mapping[str, str] = os.environ) -> Environment:
    """Return the host or container around the daemon, by the marks of systemd-detect-virt(1)."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return Environment.KUBERNETES
    if os.path.exists(os.path.join(root, "run/.containerenv")):
        return Environment.PODMAN
    if os.path.exists(os.path.join(root, ".dockerenv")):
        return Environment.DOCKER
    # The container's name, as told to systemd or a different first program of the container.
    told = _read(os.path.join(root, "run/systemd/container"))
    first = _read(os.path.join(root, "proc/1/environ")).split("\0")
    names = [word.removeprefix("container=") for word in first if word.startswith("container=")]
    name = (told or next(iter(names), "")).strip()
    if not name:
        return Environment.HOST
    return (
        Environment(name)
        if name in {Environment.PODMAN, Environment.DOCKER}
        else Environment.CONTAINER
    )


def _read(path: str) -> str:
    """Return a file's text; "" where the file is missing or unreadable."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def hierarchy(root: str = ROOT) -> Hierarchy:
    """Return how cgroups are mounted, by the file system's magic number as systemd does."""
    if _magic(root) == _CGROUP2_SUPER_MAGIC:
        return Hierarchy.UNIFIED
    if _magic(os.path.join(root, "unified")) == _CGROUP2_SUPER_MAGIC:
        return Hierarchy.HYBRID
    try:
        mounted = bool(os.listdir(root))
    except OSError:
        # A missing or unreadable hierarchy is of no use to the daemon.
        mounted = False
    return Hierarchy.LEGACY if mounted else Hierarchy.NONE


def missing_controllers(directory: str = ROOT) -> list[str]:
    """Return those of cpu, io, memory and pids that a v2 cgroup lacks."""
    text = read_text(directory, "cgroup.controllers") or ""
    return sorted(_NEEDED - set(text.split()))


def memory_bound(*, own: bool, proc: str = "/proc", root: str = ROOT) -> Bound:
    """Return the tightest finite memory limit of cgroups, else MemTotal.

    own: commands stay below the daemon's own cgroup, and all limits from there up count; else only
    limits above every visible cgroup, as in a container.
    """
    bounds = [Bound(memory_total(proc), "MemTotal of /proc/meminfo")]
    files = _files("memory", "memory.max", "memory.limit_in_bytes", proc, root, own=own)
    return _tightest([*bounds, *_bounds(files)])


def tasks_bound(*, own: bool, proc: str = "/proc", root: str = ROOT) -> Bound:
    """Return the tightest finite bound on tasks: the two of the kernel, and those of cgroups.

    own: as in `memory_bound`.
    """
    bounds = []
    for name in ("threads-max", "pid_max"):
        count = read_number(os.path.join(proc, "sys/kernel"), name)
        if count is not None:
            bounds.append(Bound(count, f"kernel.{name}"))
    files = _files("pids", "pids.max", "pids.max", proc, root, own=own)
    return _tightest([*bounds, *_bounds(files)])


def _tightest(bounds: Iterable[Bound]) -> Bound:
    return min(bounds, key=lambda bound: bound.value)


def terminals(proc: str = "/proc") -> int | None:
    """Return how many terminals may be open, less the host's own reserve; None = unknown."""
    most = read_number(os.path.join(proc, "sys/kernel/pty"), "max")
    kept = read_number(os.path.join(proc, "sys/kernel/pty"), "reserve")
    return None if most is None or kept is None else max(0, most - kept)


def memory_total(proc: str = "/proc") -> int:
    """Return MemTotal in bytes."""
    total = read_label(os.path.join(proc, "meminfo"), "MemTotal")
    if total is None:
        raise ValueError(f"{proc}/meminfo has no MemTotal")
    return int(total.split()[0]) * 1024


def _bounds(files: Iterable[tuple[str, str]]) -> Iterator[Bound]:
    for directory, name in files:
        limit = read_number(directory, name)
        if limit is not None and limit < _V1_UNLIMITED:
            yield Bound(limit, os.path.join(directory, name))


def _files(
    controller: str, unified: str, legacy: str, proc: str, root: str, *, own: bool
) -> Iterator[tuple[str, str]]:
    """Yield directory and name of each file with a limit, of both hierarchies."""
    file = os.path.join(proc, "self/cgroup")
    path = own_cgroup(file)
    if path is not None:
        for directory in _upwards(root, path if own else ""):
            yield directory, unified
    place = _v1_place(file, proc, controller)
    if place is not None:
        mount_point, path = place
        for directory in _upwards(mount_point, path if own else ""):
            yield directory, legacy


def _v1_place(file: str, proc: str, controller: str) -> tuple[str, str] | None:
    """Return the mount point of a v1 controller, and the path of the daemon's cgroup below."""
    path = None
    with open(file, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            _, controllers, own = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(","):
                path = own
    mount = None if path is None else _v1_mount(proc, controller)
    if path is None or mount is None:
        return None
    mount_root, mount_point = mount
    # In a container the mount may show only the container's part of the hierarchy.
    if mount_root != "/":
        path = path.removeprefix(mount_root)
    return mount_point, path


def _v1_mount(proc: str, controller: str) -> tuple[str, str] | None:
    """Return (root, mount point) of a v1 controller."""
    for mount in mounts(os.path.join(proc, "self/mountinfo")):
        if mount.kind == "cgroup" and controller in mount.super_options:
            return mount.root, mount.point
    return None


def _upwards(top: str, path: str) -> Iterator[str]:
    """Yield the directories from `top`/`path` up to `top`, visible or not."""
    relative = path.strip("/")
    while relative:
        yield os.path.join(top, relative)
        relative = os.path.dirname(relative)
    yield top


def _magic(path: str) -> int | None:
    """Return f_type of statfs(2), absent from the standard library; None on an error."""
    buffer = ctypes.create_string_buffer(256)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        return None
    return ctypes.c_long.from_buffer(buffer).value
