# SPDX-License-Identifier: Apache-2.0
"""Memory that no resident set shows: files in /dev/shm and System V segments.

The host's sum (Shmem) tells cheaply whether this memory, or the files held by processes (files.py),
grew at all.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator
from contextlib import suppress

from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.libc import libc
from sandboxd.osutil.namespaces import enter, namespace_number, open_namespace
from sandboxd.osutil.space import space_of

_BLOCK_BYTES = 512
# uptime, loads, six sizes of memory, procs with its padding, two sizes of high memory.
_MEM_UNIT_OFFSET = ctypes.sizeof(ctypes.c_long) * 13
_WALKED_FILES = 10000


class _SystemInformation(ctypes.Structure):
    """struct sysinfo of sysinfo(2), which costs a fiftieth of a look at /proc/meminfo."""

    _fields_ = (
        ("uptime", ctypes.c_long),
        ("loads", ctypes.c_ulong * 3),
        ("totalram", ctypes.c_ulong),
        ("freeram", ctypes.c_ulong),
        ("sharedram", ctypes.c_ulong),
        ("rest", ctypes.c_ulong * 16),
    )


class HostGauge:
    """The host's Shmem and free memory."""

    def __init__(self) -> None:
        self._information = _SystemInformation()
        self._reference = ctypes.byref(self._information)
        unit = ctypes.c_uint32.from_buffer(self._information, _MEM_UNIT_OFFSET)
        libc.sysinfo(self._reference)
        self._unit = unit.value

    def bytes(self) -> int:
        """Return the bytes of all files in memory and shared mappings of the host."""
        libc.sysinfo(self._reference)
        return int(self._information.sharedram) * self._unit

    @property
    def free_bytes(self) -> int:
        """Unused memory, as of the last call of `bytes`."""
        return int(self._information.freeram) * self._unit


class SharedFiles:
    """Files in /dev/shm and System V segments of an execution, found through a process.

    device, namespace: identify both; executions of a sandbox may share them.
    """

    def __init__(self, pid: int, uid: int | None) -> None:
        """uid: whose files count where /dev/shm or the ipc namespace is the host's; None = none.

        Raises PermissionError without CAP_SYS_PTRACE, FileNotFoundError when the process is gone.
        """
        self._uid = uid
        self._mount_fd = self._segments_fd = -1
        with suppress(NotADirectoryError):
            fd = os.open(f"/proc/{pid}/root/dev/shm", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            if _same_device(fd, "/dev/shm"):  # noqa: S108 - the mount point, not a file in it
                os.close(fd)
            else:
                self._mount_fd = fd
        self.device = 0 if self._mount_fd < 0 else os.fstat(self._mount_fd).st_dev
        self.namespace = namespace_number("ipc", pid)
        self._own_segments = self.namespace != namespace_number("ipc")
        self._segments_fd = _open_segments(pid if self._own_segments else None)

    def mounted_bytes(self) -> int:
        """Return the bytes used in the execution's own /dev/shm: one call, at every look."""
        if self._mount_fd < 0:
            return 0
        return space_of(self._mount_fd).used_bytes

    def other_bytes(self) -> Generator[None, None, int]:
        """Sum the bytes of System V segments, and of /dev/shm if the host's, in steps (work.py)."""
        total = 0
        for line in _whole(self._segments_fd).splitlines()[1:]:
            fields = line.split()
            # The owner may give a segment away, the creator stays (shmctl(2)).
            if self._own_segments or int(fields[9]) == self._uid:
                total += int(fields[14]) + int(fields[15])
        if self._mount_fd < 0 and self._uid is not None:
            owned = _owned_bytes("/dev/shm", self._uid)  # noqa: S108 - looked at, not used
            total += yield from owned
        return total

    def close(self) -> None:
        """Close the descriptors, which hold the memory behind."""
        for fd in (self._mount_fd, self._segments_fd):
            if fd >= 0:
                os.close(fd)
        self._mount_fd = self._segments_fd = -1


def _whole(fd: int) -> bytes:
    """Return the whole of a file of /proc that is read page by page."""
    data = b""
    while chunk := os.pread(fd, 65536, len(data)):
        data += chunk
    return data


def _same_device(fd: int, path: str) -> bool:
    try:
        return os.fstat(fd).st_dev == os.stat(path).st_dev
    except FileNotFoundError:
        return False


def _open_segments(pid: int | None) -> int:
    """Open /proc/sysvipc/shm in a process's ipc namespace, which the open file keeps."""
    path = "/proc/sysvipc/shm"
    if pid is None:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with closing_fd(open_namespace("ipc")) as home, closing_fd(open_namespace("ipc", pid)) as there:
        try:
            enter(there, "ipc")
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            enter(home, "ipc")


def _owned_bytes(directory: str, uid: int) -> Generator[None, None, int]:
    total = files = 0
    device = os.stat(directory).st_dev
    waiting = [directory]
    while waiting and files <= _WALKED_FILES:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                files += 1
                with suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    status = entry.stat(follow_symlinks=False)
                    if status.st_uid == uid and status.st_dev == device:
                        total += status.st_blocks * _BLOCK_BYTES
                yield
    return total
