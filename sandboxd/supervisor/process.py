# SPDX-License-Identifier: Apache-2.0
"""One process as /proc shows it, through files that stay open.

A read after the process's end fails, so that a reused pid is never taken for the process, and a
read costs a third of an open (proc(5)).
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field

from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.labels import parse_numbers, read_label
from sandboxd.osutil.pidfd import open_pidfd
from sandboxd.osutil.processes import GONE, stat_fields, threads

# Descriptors kept for sockets and for looks that open and close.
_SPARE_FDS = 256
_kept_fds = 0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Forked without an exec since (include/linux/sched.h).
_PF_FORKNOEXEC = 0x40
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Holdings:
    """Files in memory that descriptors and mappings led to: paths by inode.

    ran, mapped_ran, new_memory: the state of process and host when the paths were read.
    """

    ran: bytes = b""
    mapped_ran: bytes = b""
    new_memory: int = -1
    mapped_at: float = 0.0
    descriptors: dict[int, str] = field(default_factory=dict)
    mappings: dict[int, str] = field(default_factory=dict)


class Process:
    """Counters of the last look, in clock ticks: `own`, and `children`, those waited for.

    io_read, io_written: including waited-for children; -1 where unreadable. body: the tid of the
    thread through which memory is read: /proc/PID shows no memory once the main thread has ended
    while more threads run. inherited_bytes: anonymous memory that may be shared with the parent.
    holdings: files in memory, kept by files.py. is_setup: the child before the command's exec,
    whose memory is sandboxd's.
    """

    __slots__ = (
        "_files", "_fresh", "_last", "_resident", "anonymous_bytes", "body", "children",
        "children_gain", "faults", "has_execed", "holdings", "inherited_bytes", "io_read",
        "io_written", "is_setup", "is_zombie", "may_have_grown", "own", "own_gain", "parent", "pid",
        "resident_bytes", "start_time", "threads",
    )  # fmt: skip

    def __init__(self, pid: int) -> None:
        """Raises FileNotFoundError or ProcessLookupError for a process that is gone."""
        self.pid = self.body = pid
        self.holdings = Holdings()
        self.inherited_bytes = -1
        self.has_execed = self.is_setup = False
        self._files: dict[str, int] = {}
        self._last = self._fresh = self._resident = b""
        self.own = self.children = self.faults = self.parent = self.start_time = 0
        self.own_gain = self.children_gain = 0
        self.threads = 1
        self.resident_bytes = self.anonymous_bytes = 0
        self.io_read = self.io_written = 0
        self.may_have_grown = True
        self.is_zombie = False

    def look(self) -> bool:
        """Read the times; return whether a value changed since the last look."""
        data = self._fresh or self._read("stat")
        self._fresh = b""
        if data == self._last:
            return False
        self._last = data
        fields = stat_fields(data, 22)
        self.is_zombie = fields[0] in b"ZX"
        self.parent = int(fields[1])
        self.has_execed = not int(fields[6]) & _PF_FORKNOEXEC
        faults, resident = int(fields[7]) + int(fields[9]), fields[21]
        # process_vm_writev(2) of a further process adds pages without a fault of this process.
        self.may_have_grown |= faults != self.faults or resident != self._resident
        self.faults, self._resident = faults, resident
        own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        self.own_gain, self.children_gain = own - self.own, children - self.children
        self.own, self.children = own, children
        self.threads = int(fields[17])
        self.start_time = int(fields[19])
        return True

    def is_unchanged(self) -> bool:
        """Whether a look would find no change. Raises ProcessLookupError."""
        data = self._read("stat")
        if data == self._last:
            return True
        self._fresh = data
        return False

    def look_at_memory(self) -> None:
        """Read the resident set."""
        if self.is_setup and not self.has_execed:
            return
        self.is_setup = False
        fields = self._memory_words()
        resident, shared = int(fields[1]), int(fields[2])
        self.resident_bytes = resident * PAGE_BYTES
        self.anonymous_bytes = max(0, resident - shared) * PAGE_BYTES
        self.may_have_grown = False

    def _memory_words(self) -> list[bytes]:
        """Return the fields of the process's statm.

        statm of an ended thread fails; statm of an ended main thread reads 0 in every field.
        """
        words = [b"0"] * 3
        if self.body == self.pid:
            words = self._read("statm").split(None, 3)
        else:
            with suppress(*GONE):
                words = _read_once(self.body, "statm").split(None, 3)
        if words[0] != b"0" or self.threads == 1:
            return words
        for thread in threads(self.pid):
            with suppress(*GONE):
                words = _read_once(thread, "statm").split(None, 3)
                if words[0] != b"0":
                    self.body = thread
                    break
        return words

    def note_inherited(self) -> None:
        """Record how much anonymous memory may be the parent's.

        A forked process begins with the parent's memory: the size first seen counts as inherited,
        until the process frees the memory or execs (fork(2), execve(2)).
        """
        if self.has_execed:
            self.inherited_bytes = 0
        elif self.inherited_bytes < 0 or self.anonymous_bytes < self.inherited_bytes:
            # Swapped pages come back as the parent's.
            had = self.anonymous_bytes + swapped_bytes(self.body)
            self.inherited_bytes = (
                had if self.inherited_bytes < 0 else min(had, self.inherited_bytes)
            )

    @property
    def own_bytes(self) -> int:
        """A lower bound in bytes of anonymous memory that no further process shares."""
        return max(0, self.anonymous_bytes - max(0, self.inherited_bytes))

    def schedule(self) -> bytes:
        """Return bytes that change whenever the process has run; empty where unknown.

        Unknown is a process of several threads (proc(5), schedstat).
        """
        if self.threads > 1:
            return b""
        try:
            return _read_once(self.pid, "schedstat")
        except GONE:
            return b""

    def look_at_io(self) -> None:
        """Read what reached, or will reach, a disk. Raises PermissionError if not allowed."""
        values = parse_numbers(self._read("io"))
        self.io_read, self.io_written = values[b"read_bytes"], values[b"write_bytes"]

    def count_from_birth(self) -> None:
        """Let the next look count the whole usage since the fork."""
        self._last = b""
        self.own = self.children = self.io_read = self.io_written = 0

    def signal(self, number: int) -> None:
        """Signal the process, never a process that reused the pid."""
        with suppress(*GONE, PermissionError):
            with closing_fd(open_pidfd(self.pid)) as pidfd:
                # Not by a look: usage since the last look is left for the next look to count.
                if self.start_time in (0, int(self._state_words()[19])):
                    signal.pidfd_send_signal(pidfd, number)

    def stands_still(self) -> bool:
        """Whether no more user code runs before a SIGSTOP: stopped, ended, or uninterruptible."""
        try:
            return self._state_words()[0] in b"TtZXD"
        except GONE:
            return True

    def _state_words(self) -> list[bytes]:
        """Return the fields of stat from the state on."""
        return stat_fields(self._read("stat"), 20)

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


def _read_once(number: int, name: str) -> bytes:
    fd = os.open(f"/proc/{number}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, 1024, 0)
    finally:
        os.close(fd)


def proportional(pid: int) -> tuple[int, int]:
    """Return (anonymous or swapped, shared) proportional bytes. Raises PermissionError."""
    with suppress(*GONE):
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            values = parse_numbers(file.read())
        anonymous = values.get(b"Pss_Anon", values.get(b"Pss", 0)) + values.get(b"SwapPss", 0)
        return anonymous * 1024, values.get(b"Pss_Shmem", 0) * 1024
    return 0, 0


def without_files(pid: int) -> tuple[int, int]:
    """Return resident (anonymous, shared memory) bytes, without reclaimable pages of disk files."""
    values = _status(pid)
    return values.get(b"RssAnon", 0) * 1024, values.get(b"RssShmem", 0) * 1024


def swapped_bytes(pid: int) -> int:
    """Return the swapped-out anonymous bytes of a process."""
    return _status(pid).get(b"VmSwap", 0) * 1024


def _status(pid: int) -> dict[bytes, int]:
    with suppress(*GONE), open(f"/proc/{pid}/status", "rb") as file:
        return parse_numbers(file.read())
    return {}


def shared_anonymous(pid: int) -> Generator[None, None, int]:
    """Sum the proportional bytes of shared mappings without a file, in steps (work.py)."""
    total, counts = 0, False
    with suppress(*GONE), open(f"/proc/{pid}/smaps", "rb") as file:
        for line in file:
            if line[:1] in b"0123456789abcdef":
                counts = line.rstrip().endswith(b"/dev/zero (deleted)")
                yield
            elif counts and line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def is_group_leader(pid: int) -> bool:
    """Whether the pid is a process's, not a thread's."""
    with suppress(*GONE):
        return read_label(f"/proc/{pid}/status", "Tgid") == str(pid)
    return False
