# SPDX-License-Identifier: Apache-2.0
"""Files in memory held by descriptors and mappings of a process.

Counted are memfds, removed files and shared mappings without a file; all are on one device, the
kernel's own tmpfs. A hostile process may hold a hundred thousand, so a walk is a generator: the
caller stops after a fair share of time and goes on later. For a process that did not run since the
last walk only the sizes of files are read again; mappings, the most expensive, only after the
host's Shmem grew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.processes import GONE
from sandboxd.osutil.tables import descriptor_tables
from sandboxd.supervisor.process import Process

_BLOCK_BYTES = 512
# System V segments are counted by ipc namespace (ipc/shm.c names their mappings so).
_SEGMENT = b"/SYSV"
# Processes may hand mappings on without new memory: now and then all are read.
_MAPPINGS_SECONDS = 10.0
# A process that made itself undumpable hides from a supervisor of the same uid.
_UNSEEN = (*GONE, PermissionError)


def memfd_device() -> int:
    """Return the device number of every memfd of this host (tmpfs' internal mount)."""
    with closing_fd(os.memfd_create("probe", os.MFD_CLOEXEC)) as fd:
        return os.fstat(fd).st_dev


def sees_mapped() -> bool:
    """Whether this process may stat the mapped files of other processes (proc(5), map_files)."""
    with suppress(PermissionError), os.scandir("/proc/self/map_files") as entries:
        for entry in entries:
            entry.stat()
            return True
    return False


class Walker:
    """Walks over files on `device`. new_memory: raised when the host has more files in memory."""

    def __init__(self, device: int) -> None:
        self._device = device
        self.new_memory = 0

    def walk(self, process: Process, now: float, found: dict[int, int]) -> Iterator[None]:
        """Add the bytes of each file to `found` by inode. Yields after each entry."""
        held = process.holdings
        ran = process.schedule()
        if not ran or ran != held.ran:
            paths: dict[int, str] = {}
            yield from self._descriptors(process, paths)
            held.descriptors, held.ran = paths, ran
        new_memory = self.new_memory
        is_due = new_memory != held.new_memory or now > held.mapped_at + _MAPPINGS_SECONDS
        if is_due and (not ran or ran != held.mapped_ran):
            paths = {}
            yield from self._mappings(process.body, paths)
            held.mappings, held.mapped_ran = paths, ran
            held.new_memory, held.mapped_at = new_memory, now
        for path in {**held.mappings, **held.descriptors}.values():
            with suppress(*_UNSEEN):
                status = os.stat(path)
                if status.st_dev == self._device:
                    found[status.st_ino] = status.st_blocks * _BLOCK_BYTES
            yield

    def _descriptors(self, process: Process, paths: dict[int, str]) -> Iterator[None]:
        with suppress(*_UNSEEN):
            # A process with a single thread has a single descriptor table.
            tables = [process.pid] if process.threads == 1 else descriptor_tables(process.pid)
            for number in tables:
                yield from self._table(number, paths)

    def _table(self, number: int, paths: dict[int, str]) -> Iterator[None]:
        with suppress(*_UNSEEN), os.scandir(f"/proc/{number}/fd") as entries:
            for entry in entries:
                with suppress(*_UNSEEN):
                    status = entry.stat()
                    if status.st_dev == self._device:
                        paths[status.st_ino] = entry.path
                yield
        yield

    def _mappings(self, number: int, paths: dict[int, str]) -> Iterator[None]:
        device = f" {os.major(self._device):02x}:{os.minor(self._device):02x} ".encode()
        with suppress(*_UNSEEN), open(f"/proc/{number}/maps", "rb") as lines:
            for line in lines:
                if device in line:
                    place, _, _, _, inode, *name = line.split(None, 5)
                    if not (name and name[0].startswith(_SEGMENT)):
                        start, _, end = place.partition(b"-")
                        # Without the zeros in front, unlike in maps.
                        entry = f"{int(start, 16):x}-{int(end, 16):x}"
                        paths.setdefault(int(inode), f"/proc/{number}/map_files/{entry}")
                yield
