# SPDX-License-Identifier: Apache-2.0
"""Processes that are counted together: an execution's, or a sandbox's without execution."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import replace

from sandboxd.osutil.processes import GONE
from sandboxd.supervisor.files import Walker
from sandboxd.supervisor.memory import MemoryTotals
from sandboxd.supervisor.process import (
    TICKS_PER_SECOND,
    Process,
    proportional,
    shared_anonymous,
    without_files,
)
from sandboxd.supervisor.throttle import Gains

# A sixteenth of double counting is borne; more is looked into.
_OVERLAP_SHARE = 16


class Group:
    """Live processes by pid, and the usage since the last look.

    wait(2) adds a child's usage to the parent's counters, so the counters of a vanished process are
    subtracted from the parents' growth. A parent that ignores SIGCHLD discards a child's usage; the
    usage seen so far stays counted (wait(2), getrusage(2)).
    """

    def __init__(self, *, reads_io: bool, measures_exactly: bool) -> None:
        self.members: dict[int, Process] = {}
        # Bytes of files that only processes lead to, by inode, as of the last scan.
        self.files: dict[int, int] = {}
        self._reads_io = reads_io
        self._measures_exactly = measures_exactly
        self.gone: list[int] = []
        self.changed = False

    def look(self, parent: Process | None = None, *, parent_too: bool = False) -> Gains:
        """Read the counters of all processes and return the usage since the last look.

        parent: a trusted process outside the group whose own work does not count; read when a
        member changed (see `changed`), or with parent_too. The pids of vanished processes are in
        `gone`.
        """
        self._own = self._children = self._lost = self._read = self._written = 0
        self.changed = False
        self.gone = []
        vanished = []
        for process in self.members.values():
            try:
                if process.look():
                    self._add(process)
                    self._own += process.own_gain
                elif process.body != process.pid:
                    # /proc/PID/stat of a main thread that has ended shows no growth.
                    self._look_at_memory(process)
            except GONE:
                vanished.append(process)
        for process in vanished:
            self._lose(process)
            del self.members[process.pid]
        if parent is not None and (self.changed or parent_too):
            try:
                if parent.look():
                    self._add(parent)
            except GONE:
                self._lose(parent)
        ticks = max(0, self._own) + max(0, self._children - self._lost)
        return Gains(ticks / TICKS_PER_SECOND, max(0, self._read), max(0, self._written))

    def look_at_memory(self) -> None:
        """Read all resident sets anew: freed memory causes no fault, and can go unseen."""
        for process in list(self.members.values()):
            with suppress(*GONE):
                self._look_at_memory(process)

    def scan(self, walker: Walker, now: float) -> Generator[None, None, None]:
        """Find files in memory anew, in steps (work.py)."""
        found: dict[int, int] = {}
        for process in list(self.members.values()):
            yield from walker.walk(process, now, found)
        self.files = found

    def signal(self, number: int) -> None:
        """Signal each process."""
        for process in list(self.members.values()):
            process.signal(number)

    def close(self) -> None:
        """Forget everybody."""
        for process in self.members.values():
            process.close()
        self.members.clear()

    @property
    def threads(self) -> int:
        """The number of tasks, as RLIMIT_NPROC counts."""
        return sum(process.threads for process in self.members.values())

    def _add(self, process: Process) -> None:
        self.changed = True
        self._children += process.children_gain
        if process.may_have_grown:
            self._look_at_memory(process)
        if self._reads_io:
            read, written = process.io_read, process.io_written
            # A process that made itself undumpable hides from a supervisor of the same uid.
            with suppress(PermissionError):
                process.look_at_io()
            self._read += process.io_read - read
            self._written += process.io_written - written

    def _look_at_memory(self, process: Process) -> None:
        process.look_at_memory()
        if not self._measures_exactly:
            process.note_inherited()

    def _lose(self, process: Process) -> None:
        self.changed = True
        self._lost += process.own + process.children
        self._read -= process.io_read
        self._written -= process.io_written
        self.gone.append(process.pid)
        process.close()


def sums(groups: Iterable[Group], file_bytes: int, unseen_bytes: int | None = None) -> MemoryTotals:
    """Return bounds on the memory of the groups together.

    unseen_bytes: growth of the host's files in memory since the scan that found file_bytes; None =
    not all files are found.
    """
    resident = anonymous = largest = faults = 0
    for group in groups:
        for process in group.members.values():
            resident += process.resident_bytes
            anonymous += process.anonymous_bytes
            faults += process.faults
            largest = max(largest, process.anonymous_bytes)
    without_files = None if unseen_bytes is None else anonymous + file_bytes + unseen_bytes
    return MemoryTotals(resident, largest, file_bytes, faults, without_files_bytes=without_files)


def closer(seen: MemoryTotals, groups: Iterable[Group]) -> MemoryTotals:
    """Return the sums with a better lower bound: the exact memory of the largest process."""
    processes = [p for one in groups for p in one.members.values()]
    largest = max(processes, key=lambda process: process.resident_bytes, default=None)
    if largest is None:
        return seen
    return replace(seen, largest_bytes=sum(without_files(largest.body)))


def certain(groups: Iterable[Group], file_bytes: int) -> int:
    """Return a lower bound in bytes where shared pages cannot be told from private pages.

    The bound is the private memory of each process, and the shared memory of the process that seems
    to have most.
    """
    processes = [p for one in groups for p in one.members.values()]
    most = max(processes, key=lambda p: p.resident_bytes - p.anonymous_bytes, default=None)
    shared = 0 if most is None else without_files(most.body)[1]
    return sum(process.own_bytes for process in processes) + max(shared, file_bytes)


def measure(
    groups: Iterable[Group], file_bytes: int, limit_bytes: int, *, sees_mapped: bool
) -> Generator[None, None, int]:
    """Sum the exact memory of the groups in bytes, in steps (work.py).

    Pages of disk files are excluded, since the kernel can reclaim them. sees_mapped: whether
    file_bytes includes shared mappings without a file. Raises PermissionError without
    CAP_SYS_PTRACE.
    """
    processes = [process for group in groups for process in group.members.values()]
    bodies = [process.body for process in processes if not process.is_setup]
    anonymous = shared = 0
    for body in bodies:
        one_anonymous, one_shared = proportional(body)
        anonymous += one_anonymous
        shared += one_shared
        yield
    if not sees_mapped and min(shared, file_bytes) * _OVERLAP_SHARE > limit_bytes:
        total = anonymous + file_bytes
        for body in bodies:
            total += yield from shared_anonymous(body)
        return total
    return anonymous + max(shared, file_bytes)
