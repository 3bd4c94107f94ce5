# SPDX-License-Identifier: Apache-2.0
"""One process as /proc shows it, through files that stay open: a read after its end fails, so no
other process can be taken for it, and costs a third of an open (proc(5))."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field

from sandboxd.osutil.pidfd import open_pidfd
from sandboxd.osutil.processes import stat_fields

# Descriptors kept for sockets and for looks that open and close.
_SPARE_FDS = 256
_kept_fds = 0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Forked, and no other program since (include/linux/sched.h).
_PF_FORKNOEXEC = 0x40
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Holdings:
    """Paths by inode of the files in memory that descriptors and mappings led to; `ran`,
    `mapped_ran` and `new_memory` tell as of when."""

    ran: bytes = b""
    mapped_ran: bytes = b""
    new_memory: int = -1
    mapped_at: float = 0.0
    descriptors: dict[int, str] = field(default_factory=dict)
    mappings: dict[int, str] = field(default_factory=dict)


class Process:
    """Counters of the last look. cpu ticks: `own`, and `children`: those it waited for.

    io counts what waited-for children did, too; -1 where it may not be read. body: the number of
    the thread through which its memory is seen: /proc/PID shows none once the main thread has
    ended, while the others run on. inherited_bytes: of its anonymous memory, what may be its
    parent's as well. holdings: files that it leads to, kept by files.py. is_setup: not the command
    yet, but what makes its place; its memory is ours.
    """

    __slots__ = (
        "_files", "_fresh", "_last", "_resident", "anonymous_bytes", "body", "children",
        "children_gain", "faults", "has_execed", "holdings", "inherited_bytes", "io_read",
        "io_written", "is_setup", "is_zombie", "may_have_grown", "own", "own_gain", "parent", "pid",
        "resident_bytes", "start_time", "threads",
    )  # fmt: skip

    def __init__(self, pid: int) -> None:
        """Raises FileNotFoundError, ProcessLookupError when it is gone."""
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
        """Read the times; whether anything changed since the last look."""
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
        # Faults of another process can give this one its pages (process_vm_writev(2)).
        self.may_have_grown |= faults != self.faults or resident != self._resident
        self.faults, self._resident = faults, resident
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
        if self.is_setup and not self.has_execed:
            return
        self.is_setup = False
        fields = self._memory_words()
        resident, shared = int(fields[1]), int(fields[2])
        self.resident_bytes = resident * PAGE_BYTES
        self.anonymous_bytes = max(0, resident - shared) * PAGE_BYTES
        self.may_have_grown = False

    def _memory_words(self) -> list[bytes]:
        """statm of the process. A thread's fails once it has ended, but for the main one's, which
        then says 0 of everything."""
        words = [b"0"] * 3
        if self.body == self.pid:
            words = self._read("statm").split(None, 3)
        else:
            with suppress(ProcessLookupError, FileNotFoundError):
                words = _read_once(self.body, "statm").split(None, 3)
        if words[0] != b"0" or self.threads == 1:
            return words
        for name in os.listdir(f"/proc/{self.pid}/task"):
            with suppress(ProcessLookupError, FileNotFoundError):
                words = _read_once(int(name), "statm").split(None, 3)
                if words[0] != b"0":
                    self.body = int(name)
                    break
        return words

    def note_inherited(self) -> None:
        """Of its anonymous memory, a fork has its parent's: what it had when first seen stands for
        that, until it frees it or becomes another program (fork(2), execve(2))."""
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
        """At least so much of its anonymous memory is no other process'."""
        return max(0, self.anonymous_bytes - max(0, self.inherited_bytes))

    def schedule(self) -> bytes:
        """Differs whenever the process has run; empty where that cannot be told, as for one of
        several threads (proc(5), schedstat)."""
        if self.threads > 1:
            return b""
        try:
            return _read_once(self.pid, "schedstat")
        except (FileNotFoundError, ProcessLookupError):
            return b""

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
                # No look: what it used since the last one is for the next to count.
                if self.start_time in (0, int(self._state_words()[19])):
                    signal.pidfd_send_signal(pidfd, number)
            finally:
                os.close(pidfd)

    def stands_still(self) -> bool:
        """Whether it is stopped, or has ended; or is in a wait of the kernel's that no signal
        interrupts, such as vfork(2): it stands still before anything of its own goes on."""
        try:
            return self._state_words()[0] in b"TtZXD"
        except (ProcessLookupError, FileNotFoundError):
            return True

    def _state_words(self) -> list[bytes]:
        """stat from the state on."""
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


def without_files(pid: int) -> tuple[int, int]:
    """Resident (anonymous, shared memory) bytes of a process. Pages of disk files are in neither:
    the kernel can take them back."""
    values = _status(pid)
    return values.get(b"RssAnon", 0) * 1024, values.get(b"RssShmem", 0) * 1024


def swapped_bytes(pid: int) -> int:
    """Anonymous bytes of a process that are swapped out."""
    return _status(pid).get(b"VmSwap", 0) * 1024


def _status(pid: int) -> dict[bytes, int]:
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/status", "rb") as file:
        return parse_pairs(file.read())
    return {}


def shared_anonymous(pid: int) -> Generator[None, None, int]:
    """Proportional bytes of its shared mappings that belong to no file anybody could find; in
    steps (work.py)."""
    total, counts = 0, False
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/smaps", "rb") as file:
        for line in file:
            if line[:1] in b"0123456789abcdef":
                counts = line.rstrip().endswith(b"/dev/zero (deleted)")
                yield
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
