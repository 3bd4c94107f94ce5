# SPDX-License-Identifier: Apache-2.0
"""One process as /proc shows it, through files that stay open: a read after its end fails, so no
other process can be taken for it, and costs a third of an open (proc(5))."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress

from sandboxd.pidfd import open_pidfd

# Descriptors kept for sockets and for looks that open and close.
_SPARE_FDS = 256
_kept_fds = 0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Process:
    """Counters of the last look. cpu ticks: `own`, and `children`: those it waited for.

    io counts what waited-for children did, too; -1 where it may not be read.
    """

    __slots__ = (
        "_files", "_fresh", "_last", "anonymous_bytes", "children", "children_gain", "faults",
        "has_new_faults", "io_read", "io_written", "is_zombie", "own", "own_gain", "parent", "pid",
        "resident_bytes", "start_time", "threads",
    )  # fmt: skip

    def __init__(self, pid: int) -> None:
        """Raises FileNotFoundError, ProcessLookupError when it is gone."""
        self.pid = pid
        self._files: dict[str, int] = {}
        self._last = self._fresh = b""
        self.own = self.children = self.faults = self.parent = self.start_time = 0
        self.own_gain = self.children_gain = 0
        self.threads = 1
        self.resident_bytes = self.anonymous_bytes = 0
        self.io_read = self.io_written = 0
        self.has_new_faults = True
        self.is_zombie = False

    def look(self) -> bool:
        """Read the times; whether anything changed since the last look."""
        data = self._fresh or self._read("stat")
        self._fresh = b""
        if data == self._last:
            return False
        self._last = data
        # The name may hold anything, parentheses and blanks included.
        fields = data[data.rindex(b")") + 2 :].split(None, 20)
        self.is_zombie = fields[0] in b"ZX"
        self.parent = int(fields[1])
        faults = int(fields[7]) + int(fields[9])
        self.has_new_faults = self.has_new_faults or faults != self.faults
        self.faults = faults
        own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        self.own_gain, self.children_gain = own - self.own, children - self.children
        self.own, self.children = own, children
        self.threads = int(fields[17])
        self.start_time = int(fields[19])
        return True

    def is_unchanged(self) -> bool:
        """Whether a look would find nothing. Raises ProcessLookupError."""
        data = self._read("stat")
        if data == self._last:
            return True
        self._fresh = data
        return False

    def look_at_memory(self) -> None:
        """Read the resident set."""
        fields = self._read("statm").split(None, 3)
        resident, shared = int(fields[1]), int(fields[2])
        self.resident_bytes = resident * PAGE_BYTES
        self.anonymous_bytes = max(0, resident - shared) * PAGE_BYTES
        self.has_new_faults = False

    def look_at_io(self) -> None:
        """Read what reached, or will reach, a disk. Raises PermissionError if not allowed."""
        values = parse_pairs(self._read("io"))
        self.io_read, self.io_written = values[b"read_bytes"], values[b"write_bytes"]

    def count_from_birth(self) -> None:
        """Let the next look count everything it used so far."""
        self._last = b""
        self.own = self.children = self.io_read = self.io_written = 0

    def signal(self, number: int) -> None:
        """Signal this process and no other that got its number since."""
        with suppress(ProcessLookupError, FileNotFoundError, PermissionError):
            pidfd = open_pidfd(self.pid)
            try:
                started = self.start_time
                self.look()
                if started in (0, self.start_time):
                    signal.pidfd_send_signal(pidfd, number)
            finally:
                os.close(pidfd)

    def close(self) -> None:
        """Close what is open."""
        global _kept_fds
        for fd in self._files.values():
            os.close(fd)
        _kept_fds -= len(self._files)
        self._files.clear()

    def _read(self, name: str) -> bytes:
        global _kept_fds
        fd = self._files.get(name)
        if fd is not None:
            return os.pread(fd, 1024, 0)
        fd = os.open(f"/proc/{self.pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        if _kept_fds < resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FDS:
            self._files[name] = fd
            _kept_fds += 1
            return os.pread(fd, 1024, 0)
        try:
            return os.pread(fd, 1024, 0)
        finally:
            os.close(fd)


def parse_pairs(data: bytes) -> dict[bytes, int]:
    """Lines of "name: number [unit]"."""
    found = {}
    for line in data.splitlines():
        name, separator, value = line.partition(b":")
        words = value.split()
        if separator and words and words[0].isdigit():
            found[name] = int(words[0])
    return found


def proportional(pid: int) -> tuple[int, int]:
    """(anonymous, shared memory) bytes of a process, each page divided among those that map it;
    swapped pages are in the first. Raises PermissionError without CAP_SYS_PTRACE."""
    with suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            values = parse_pairs(file.read())
        anonymous = values.get(b"Pss_Anon", values.get(b"Pss", 0)) + values.get(b"SwapPss", 0)
        return anonymous * 1024, values.get(b"Pss_Shmem", 0) * 1024
    return 0, 0


def without_files(pid: int) -> int:
    """Resident bytes of a process but for pages of disk files, which the kernel can take back."""
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/status", "rb") as file:
        values = parse_pairs(file.read())
        return (values.get(b"RssAnon", 0) + values.get(b"RssShmem", 0)) * 1024
    return 0


def shared_anonymous(pid: int) -> int:
    """Proportional bytes of its shared mappings that belong to no file anybody could find."""
    total, counts = 0, False
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/smaps", "rb") as file:
        for line in file:
            if line[:1] in b"0123456789abcdef":
                counts = line.rstrip().endswith(b"/dev/zero (deleted)")
            elif counts and line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def is_group_leader(pid: int) -> bool:
    """Whether this is a process' number and not one of its other threads'."""
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"Tgid:"):
                return int(line.split()[1]) == pid
    return False
