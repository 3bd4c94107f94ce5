# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.cgroup import host
from sandboxd.cgroup.host import Bound, Hierarchy

GIB = 1 << 30
MEMINFO = "MemTotal:        8388608 kB\nMemFree:         1000 kB\n"
V1_MOUNT = "35 25 0:31 {root} {point} rw,nosuid - cgroup cgroup rw,memory\n"
V1_PIDS = "36 25 0:32 {root} {point} rw,nosuid - cgroup cgroup rw,pids\n"


def proc(directory: Path, cgroup: str, mountinfo: str = "") -> str:
    self_directory = directory / "proc/self"
    self_directory.mkdir(parents=True)
    (directory / "proc/meminfo").write_text(MEMINFO)
    (self_directory / "cgroup").write_text(cgroup)
    (self_directory / "mountinfo").write_text(mountinfo)
    return str(directory / "proc")


def write(directory: Path, name: str, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)


def memory(directory: Path, cgroup: str, *, own: bool = True) -> Bound:
    return host.memory_bound(own=own, proc=proc(directory, cgroup), root=str(directory / "cg"))


def test_memory_of_the_machine(tmp_path: Path) -> None:
    bound = memory(tmp_path, "0::/a/b\n")
    assert bound == Bound(8 * GIB, "MemTotal of /proc/meminfo")


def test_tightest_limit_above_us(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    write(root / "a/b", "memory.max", "max\n")
    write(root / "a", "memory.max", f"{2 * GIB}\n")
    write(root, "memory.max", f"{4 * GIB}\n")
    bound = memory(tmp_path, "0::/a/b\n")
    assert bound == Bound(2 * GIB, f"{root}/a/memory.max")


def test_a_limit_on_us_alone_is_none_on_commands_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    write(root / "daemon.slice/sandboxd.service", "memory.max", f"{GIB}\n")
    own = "0::/daemon.slice/sandboxd.service\n"
    assert memory(tmp_path, own, own=True).value == GIB
    (tmp_path / "proc").rename(tmp_path / "before")
    assert memory(tmp_path, own, own=False).source == "MemTotal of /proc/meminfo"
    # As a container shows its own limit.
    write(root, "memory.max", f"{4 * GIB}\n")
    (tmp_path / "proc").rename(tmp_path / "then")
    bound = Bound(4 * GIB, f"{root}/memory.max")
    assert memory(tmp_path, own, own=False) == bound


def test_limit_above_what_the_machine_has(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    write(root / "a", "memory.max", f"{64 * GIB}\n")
    assert memory(tmp_path, "0::/a\n").value == 8 * GIB


def test_v1_limits(tmp_path: Path) -> None:
    point = tmp_path / "memory"
    write(point / "docker/x", "memory.limit_in_bytes", "9223372036854771712\n")
    write(point / "docker", "memory.limit_in_bytes", f"{3 * GIB}\n")
    own = "5:memory:/docker/x\n4:cpu,cpuacct:/\n"
    where = proc(tmp_path, own, V1_MOUNT.format(root="/", point=point))
    bound = host.memory_bound(own=True, proc=where, root=str(tmp_path / "cg"))
    assert bound == Bound(3 * GIB, f"{point}/docker/memory.limit_in_bytes")


def test_v1_limit_inside_a_container(tmp_path: Path) -> None:
    point = tmp_path / "memory"
    write(point, "memory.limit_in_bytes", f"{GIB}\n")
    where = proc(tmp_path, "5:memory:/docker/x\n", V1_MOUNT.format(root="/docker/x", point=point))
    assert host.memory_bound(own=True, proc=where, root=str(tmp_path / "cg")).value == GIB


def tasks(directory: Path, cgroup: str, mountinfo: str = "", *, own: bool) -> Bound:
    where = proc(directory, cgroup, mountinfo)
    write(directory / "proc/sys/kernel", "threads-max", "31175\n")
    write(directory / "proc/sys/kernel", "pid_max", "32768\n")
    return host.tasks_bound(own=own, proc=where, root=str(directory / "cg"))


def test_tasks_of_the_machine(tmp_path: Path) -> None:
    assert tasks(tmp_path, "0::/a\n", own=True) == Bound(31175, "kernel.threads-max")


def test_tasks_by_the_tightest_cgroup_that_commands_are_in(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    write(root / "system.slice/sandboxd.service", "pids.max", "100\n")
    write(root / "system.slice", "pids.max", "max\n")
    write(root, "pids.max", "4000\n")
    own = "0::/system.slice/sandboxd.service\n"
    assert tasks(tmp_path, own, own=True).value == 100
    assert host.tasks_bound(own=False, proc=str(tmp_path / "proc"), root=str(root)) == Bound(
        4000, f"{root}/pids.max"
    )


def test_tasks_by_a_v1_cgroup(tmp_path: Path) -> None:
    point = tmp_path / "pids"
    write(point / "docker/x", "pids.max", "512\n")
    mounts = V1_PIDS.format(root="/", point=point)
    assert tasks(tmp_path, "8:pids:/docker/x\n", mounts, own=True).value == 512


def test_terminals_beyond_what_the_kernel_keeps_for_the_host(tmp_path: Path) -> None:
    assert host.terminals(str(tmp_path)) is None
    write(tmp_path / "sys/kernel/pty", "max", "1280\n")
    write(tmp_path / "sys/kernel/pty", "reserve", "1024\n")
    assert host.terminals(str(tmp_path)) == 256


def test_controllers(tmp_path: Path) -> None:
    write(tmp_path, "cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma\n")
    assert host.missing_controllers(str(tmp_path)) == []
    write(tmp_path, "cgroup.controllers", "cpu pids\n")
    assert host.missing_controllers(str(tmp_path)) == ["io", "memory"]
    assert host.missing_controllers(str(tmp_path / "none")) == ["cpu", "io", "memory", "pids"]


def test_directories_that_are_no_cgroups(tmp_path: Path) -> None:
    assert host.hierarchy(str(tmp_path / "missing")) is Hierarchy.NONE
    assert host.hierarchy(str(tmp_path)) is Hierarchy.NONE
    (tmp_path / "memory").mkdir()
    assert host.hierarchy(str(tmp_path)) is Hierarchy.LEGACY


def test_this_host_agrees_with_its_mounts() -> None:
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    kinds = {line.split()[1]: line.split()[2] for line in mounts}
    expected = (
        Hierarchy.UNIFIED
        if kinds.get("/sys/fs/cgroup") == "cgroup2"
        else Hierarchy.HYBRID
        if kinds.get("/sys/fs/cgroup/unified") == "cgroup2"
        else host.hierarchy()
    )
    assert host.hierarchy() is expected
    assert host.memory_bound(own=True).value <= host.memory_total()
    assert 0 < host.tasks_bound(own=True).value <= host.tasks_bound(own=False).value


def test_mounts_and_cgroups_of_any_name_are_read(tmp_path: Path) -> None:
    """Names are bytes, and a source may be empty (mount -t tmpfs "")."""
    where = proc(tmp_path, "")
    own = tmp_path / "v1" / "x"
    own.mkdir(parents=True)
    (own / "memory.limit_in_bytes").write_text("4096\n")
    lines = [
        b"25 1 0:39 / /\xff rw - tmpfs  rw",
        f"26 1 0:40 / {tmp_path}/v1 rw - cgroup  rw,memory".encode(),
    ]
    (Path(where) / "self" / "mountinfo").write_bytes(b"\n".join(lines) + b"\n")
    (Path(where) / "self" / "cgroup").write_bytes(b"4:memory:/x\n0::/\xff\n")
    assert host.memory_bound(own=True, proc=where, root=str(tmp_path / "none")).value == 4096


def test_a_hierarchy_that_cannot_be_read_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise PermissionError(path)

    monkeypatch.setattr("os.listdir", refuse)
    assert host.hierarchy("/nowhere") is Hierarchy.NONE
