# SPDX-License-Identifier: Apache-2.0
"""What lies about on the host for attempts to find, made by root and taken away at the end."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import os
import platform
import pwd
import resource
import secrets
import shutil
import socket
import stat
import struct
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

_IPC_CREAT, _IPC_RMID = 0o1000, 0
_QUEUE_OPEN = {"x86_64": 240}.get(platform.machine(), 180)
_QUEUE_UNLINK = {"x86_64": 241}.get(platform.machine(), 181)
_CAP_SYS_RESOURCE = 24
# vfs_cap_data, revision 2, effective: CAP_NET_RAW.
_NET_RAW = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
_libc = ctypes.CDLL(None, use_errno=True)


class HostSide:
    """A context; `arm` puts privileged programs into a directory, `facts` says where all is."""

    def __init__(self) -> None:
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> HostSide:
        name = f"sandboxd-test-{secrets.token_hex(6)}"
        self.scratch = Path(tempfile.mkdtemp(prefix="sandboxd-test-", dir="/var/lib"))
        self._cleanup.callback(shutil.rmtree, self.scratch)
        self.scratch.chmod(0o1777)
        for file in ("of-root", "world"):
            (self.scratch / file).write_text("x")
        self.armed = self.scratch / "armed"
        self.armed.mkdir()
        self.armed.chmod(0o777)
        self.arm(self.armed)
        self.bind = self.scratch / "bind"
        self._furnish()
        self._files = {"host_tmp": Path("/tmp", name), "host_shm": Path("/dev/shm", name)}
        for path in self._files.values():
            path.write_text("x")
            self._cleanup.callback(path.unlink)
        self._listen(name)
        self._share(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def arm(self, directory: Path) -> None:
        """Put a set-user-id root program and one with a file capability there."""
        for source, name in (("id", "suid-id"), ("cat", "capable-cat")):
            found = shutil.which(source)
            assert found is not None
            shutil.copy(found, directory / name)
            os.chown(directory / name, 0, 0)
        (directory / "suid-id").chmod(0o4755)
        (directory / "capable-cat").chmod(0o755)
        os.setxattr(directory / "capable-cat", "security.capability", _NET_RAW)

    def _furnish(self) -> None:
        """A directory of a user's, to be bound, with other owners' files in it."""
        account = next(a for a in pwd.getpwall() if a.pw_uid and a.pw_gid)
        self._bind_uid = account.pw_uid
        self.bind.mkdir()
        self.arm(self.bind)
        for file, mode in (("of-root", 0o644), ("closed", 0o600), ("open", 0o666)):
            (self.bind / file).write_text("x")
            (self.bind / file).chmod(mode)
        os.mknod(self.bind / "device", stat.S_IFCHR, os.makedev(1, 3))
        (self.bind / "device").chmod(0o600)
        for path in (self.bind, self.bind / "device"):
            os.chown(path, account.pw_uid, account.pw_gid)

    def _listen(self, name: str) -> None:
        self._abstract = name
        path = Path("/run", f"{name}.sock")
        for family, address in (
            (socket.AF_UNIX, f"\0{name}"),
            (socket.AF_UNIX, str(path)),
            (socket.AF_INET, ("127.0.0.1", 0)),
            (socket.AF_INET6, ("::1", 0)),
        ):
            listener = socket.socket(family)
            self._cleanup.callback(listener.close)
            # A host may have no IPv6.
            with contextlib.suppress(OSError):
                listener.bind(address)
                listener.listen(64)
                if family == socket.AF_INET:
                    self._port = listener.getsockname()[1]
                self._port6 = listener.getsockname()[1] if family == socket.AF_INET6 else 0
        path.chmod(0o777)
        self._cleanup.callback(path.unlink)
        self._socket = str(path)

    def _share(self, name: str) -> None:
        self._key = secrets.randbelow(1 << 30) + 1
        memory = _libc.shmget(self._key, 4096, _IPC_CREAT | 0o666)
        semaphores = _libc.semget(self._key, 1, _IPC_CREAT | 0o666)
        messages = _libc.msgget(self._key, _IPC_CREAT | 0o666)
        assert min(memory, semaphores, messages) >= 0
        self._cleanup.callback(_libc.shmctl, memory, _IPC_RMID, None)
        self._cleanup.callback(_libc.semctl, semaphores, 0, _IPC_RMID)
        self._cleanup.callback(_libc.msgctl, messages, _IPC_RMID, None)
        self._queue = name
        flags = os.O_CREAT | os.O_RDONLY
        fd = _libc.syscall(_QUEUE_OPEN, name.encode(), flags, 0o666, None)
        assert fd >= 0
        os.close(fd)
        self._cleanup.callback(_libc.syscall, _QUEUE_UNLINK, name.encode())

    def facts(self, attacker: Any) -> dict[str, Any]:
        """For attempts, inside and outside alike."""
        return {
            **host_facts(),
            **{name: str(path) for name, path in self._files.items()},
            "abstract": self._abstract,
            "bind": str(self.bind),
            "bind_uid": self._bind_uid,
            "host_socket": self._socket,
            "ipc_key": self._key,
            "memory_max": _memory_max(attacker),
            "port": self._port,
            "port6": self._port6,
            "queue": self._queue,
            "scratch": str(self.scratch),
            "state_name": self.scratch.name,
            "world_readable": str(self.scratch / "world"),
        }


@functools.cache
def host_facts() -> dict[str, Any]:
    """What this host has by itself; empty or false where it has not."""
    status = Path("/proc/self/status").read_text().split()
    capabilities = int(status[status.index("CapEff:") + 1], 16)
    procs = _first("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/*/cgroup.procs")
    return {
        "cgroup": os.path.dirname(procs) if procs else "",
        "cgroup_procs": procs,
        "disk": _first("/dev/[vs]da", "/dev/nvme0n1", "/dev/loop0"),
        "has_bus": os.path.exists("/run/dbus/system_bus_socket"),
        "has_bwrap": shutil.which("bwrap") is not None,
        "has_cgroups": bool(glob.glob("/sys/fs/cgroup/*")),
        "has_core": resource.getrlimit(resource.RLIMIT_CORE)[1] != 0,
        "has_fuse": os.path.exists("/dev/fuse"),
        "has_kallsyms": os.path.exists("/proc/kallsyms"),
        "has_kcore": os.path.exists("/proc/kcore"),
        "has_kmsg": os.path.exists("/dev/kmsg"),
        "has_hotplug": os.path.exists("/sys/devices/system/cpu/cpu1/online"),
        "has_machine_id": os.path.exists("/etc/machine-id"),
        "has_old_passwd": _is_readable_by_all("/etc/passwd-"),
        "has_mqueue": os.path.ismount("/dev/mqueue"),
        "has_resource": bool(capabilities >> _CAP_SYS_RESOURCE & 1),
        "has_run_lock": _is_open_to_all("/run/lock"),
        "has_sudo": shutil.which("sudo") is not None,
        "has_sysrq": os.path.exists("/proc/sysrq-trigger"),
        "has_systemd": os.path.isdir("/run/systemd/system"),
        "huge_page": _huge_page(),
        "is_x86": platform.machine() == "x86_64",
        "many_signals": resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] > 16384,
        "port6": _has_ipv6(),
        "sys_file": _first(
            "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/ksm/run",
            "/sys/module/*/parameters/*",
        ),
    }  # fmt: skip


def _huge_page() -> int:
    """Bytes of one, where the host's pool has one free; else 0."""
    facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    if int(facts.get("HugePages_Free", "0")) == 0:
        return 0
    return int(facts["Hugepagesize"].split()[0]) << 10


def _is_readable_by_all(path: str) -> bool:
    return os.path.exists(path) and bool(os.stat(path).st_mode & 0o004)


def _is_open_to_all(path: str) -> bool:
    return os.path.isdir(path) and bool(os.stat(path).st_mode & 0o002)


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def _first(*patterns: str) -> str:
    """The first of these that is there and that root may open for writing; empty when none."""
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)):
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                return path
    return ""


def _memory_max(attacker: Any) -> str:
    """The file with the attacker's own limit; empty where there are no units."""
    if attacker["unit"] is None:
        return ""
    found = glob.glob(f"/sys/fs/cgroup/**/{attacker['unit']}/memory.max", recursive=True)
    return found[0] if found else ""
