# SPDX-License-Identifier: Apache-2.0
"""The disk use of sandboxes: limits, how limits are held here, and how use is known."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from threading import Event
from typing import TypeVar

from sandboxd.core.model import EnforcedBy, Enforcement
from sandboxd.core.quantity import format_bytes
from sandboxd.core.turns import Turn, Turns
from sandboxd.engine.ports.workspaces import DiskUse, Room
from sandboxd.errors import ConfigError, HostDiskFull
from sandboxd.osutil.privileges import Privileges
from sandboxd.osutil.space import space_of
from sandboxd.workspace import scan
from sandboxd.workspace.quota import UserQuota
from sandboxd.workspace.workers import finished

_DEFAULT_FLOOR_BYTES = 1 << 30
_DEFAULT_FLOOR_SHARE = 0.05
_INODE_FLOOR_SHARE = 0.02
# Seconds of a count's slice, and the rest after each slice, in slices: no count runs then.
_SLICE_SECONDS = 0.02
_REST = 3.0
# Counts under way at a time.
_COUNTS = 8
_SPARE_NAMES = 10_000

T = TypeVar("T")
Counting = Generator[None, None, scan.Counted]


class DiskMeans(StrEnum):
    """The means to hold a sandbox's disk limit; auto: user quota, else counting."""

    AUTO = "auto"
    QUOTA = "quota"
    IMAGE = "image"
    COUNT = "count"


class Disk:
    """The file system of the state directory.

    floor_bytes: free space below which no sandbox is made; None = the lesser of 1 GiB and 5 % of
    the file system.
    """

    def __init__(
        self,
        directory: str,
        privileges: Privileges,
        floor_bytes: int | None,
        means: DiskMeans = DiskMeans.AUTO,
    ) -> None:
        self._means = means
        self._directory = directory
        self._floor_bytes = floor_bytes
        self._is_root = privileges.is_root
        self._quota = UserQuota(directory)
        self._obstacle: str | None = "not looked at yet"
        self._growth = 0
        self._last_used: tuple[int, int] | None = None
        self._stop = Event()
        # A single thread, with rests: together the bound on the processor time of all counting.
        self._scanner = ThreadPoolExecutor(1, thread_name_prefix="scanner")
        self._turns = Turns(1)
        # A count keeps memory from beginning to end (scan.py).
        self._begun = Turns(_COUNTS)
        self._rests_until = 0.0

    def open(self) -> None:
        """Find out what holds a limit here. Raises ConfigError if the means asked for cannot."""
        own_uids = "sandboxes have no uids of their own"
        self._obstacle = self._quota.obstacle() if self._is_root else own_uids
        if self._means is DiskMeans.QUOTA and self._obstacle is not None:
            raise ConfigError(
                f"cannot start with SANDBOX_DISK_MEANS=quota: {self._obstacle}",
                hint="mount the state directory's file system with usrquota, or use another means",
            )
        if self._means is DiskMeans.IMAGE and not self._is_root:
            raise ConfigError(
                f"cannot start with SANDBOX_DISK_MEANS=image: {own_uids}", hint="run it as root"
            )
        if self._means in (DiskMeans.IMAGE, DiskMeans.COUNT):
            self._obstacle = f"SANDBOX_DISK_MEANS is {self._means}"

    def close(self) -> None:
        """Stop counting."""
        self._stop.set()
        self._scanner.shutdown(cancel_futures=True)

    @property
    def holds(self) -> bool:
        """Whether the kernel holds the limit."""
        return self._obstacle is None

    def enforcement(self) -> Enforcement:
        """Return who holds the disk limit, in words."""
        if self._obstacle is None:
            return Enforcement(
                EnforcedBy.KERNEL,
                "user quota of the sandbox's uid: bytes, and an inode for each 4 KiB of them",
            )
        return Enforcement(
            EnforcedBy.SUPERVISOR,
            "home and /tmp are counted while the disk fills up; RLIMIT_FSIZE bounds each file; no "
            f"kernel quota: {self._obstacle}",
            "an entry counts as 4 KiB at least; counted at most 4 times a second, with at most 2 % "
            "of a core or every 10 seconds, and a quarter of a core for all sandboxes",
        )

    def room(self) -> Room:
        """Return the free bytes, and how many of the free bytes new sandboxes need."""
        space, floor = space_of(self._directory), self._floor_bytes
        if floor is None:
            floor = min(_DEFAULT_FLOOR_BYTES, int(space.total_bytes * _DEFAULT_FLOOR_SHARE))
        return Room(space.free_bytes, floor)

    def check_floor(self) -> None:
        """Raise HostDiskFull where too little room is left for a new sandbox."""
        space = space_of(self._directory)
        if space.inodes and space.free_inodes < space.inodes * _INODE_FLOOR_SHARE:
            raise HostDiskFull(
                f"cannot create a sandbox: {space.free_inodes} of the disk's {space.inodes} inodes "
                f"are free, and {_INODE_FLOOR_SHARE:.0%} are kept free",
                hint="delete files on the state directory's file system, or release sandboxes",
                details={"free_inodes": space.free_inodes, "inodes": space.inodes,
                         "path": self._directory},
            )  # fmt: skip
        room = self.room()
        free, floor = room.free_bytes, room.floor_bytes
        if free < floor:
            raise HostDiskFull(
                f"cannot create a sandbox: {format_bytes(free)} of the disk are free, and "
                f"{format_bytes(floor)} are kept free",
                hint="free space on the state directory's file system, or release sandboxes",
                details={"free_bytes": free, "floor_bytes": floor, "path": self._directory},
            )

    def limit(self, uid: int, size_bytes: int) -> None:
        """Have the kernel hold `uid` to `size_bytes`, where quotas hold. Raises OSError."""
        if self.holds:
            self._quota.limit(uid, size_bytes)

    def lift(self, uid: int) -> None:
        """Remove the kernel's limit of `uid` before a new sandbox gets the uid. Raises OSError."""
        if self.holds:
            self._quota.lift(uid)

    async def use(self, roots: Sequence[str], uid: int, limit_bytes: int, turn: Turn) -> DiskUse:
        """Return a sandbox's disk use, from the kernel's quota, else counted. Raises OSError.

        limit_bytes: the sandbox's limit. turn: in whose turn the count runs.
        """
        if self.holds:
            return DiskUse(await asyncio.to_thread(self._quota.used, uid))
        seen_uid = uid if self._is_root else None
        # Twice the entries of a sandbox at the limit, if each entry were a file of one name.
        most_names = _SPARE_NAMES + 2 * limit_bytes // scan.BYTES_OF_AN_INODE
        async with self._begun.one(turn):
            return await self._count(scan.count(roots, seen_uid, most_names), turn)

    async def _count(self, steps: Counting, turn: Turn) -> DiskUse:
        """Run all steps of a count."""
        took = 0.0
        try:
            while True:
                counted, seconds = await self._count_on(steps, turn)
                took += seconds
                if counted is not None:
                    return DiskUse(counted.used_bytes, took, counted.obstacle)
        finally:
            if self._stop.is_set():
                steps.close()
            else:
                await self._in_scanner(steps.close)

    async def _count_on(self, steps: Counting, turn: Turn) -> tuple[scan.Counted | None, float]:
        """Run a slice of a count, in turn; return the count or None, and the processor time."""
        loop = asyncio.get_running_loop()
        async with self._turns.one(turn):
            await asyncio.sleep(self._rests_until - loop.time())
            begin = loop.time()
            try:
                return await self._in_scanner(partial(_slice, steps, self._stop))
            finally:
                now = loop.time()
                self._rests_until = now + (now - begin) * _REST

    async def _in_scanner(self, work: Callable[[], T]) -> T:
        if self._stop.is_set():
            raise InterruptedError(errno.EINTR, "the daemon stops")
        return await finished(asyncio.get_running_loop().run_in_executor(self._scanner, work))

    async def growth_bytes(self) -> int:
        """Return the growth of the file system since the start, in bytes, without shrinkage."""
        return await asyncio.to_thread(self._growth_bytes)

    def _growth_bytes(self) -> int:
        space = space_of(self._directory)
        # A file without blocks has an inode at least.
        used = space.used_bytes, space.used_inodes * scan.BYTES_OF_AN_INODE
        if self._last_used is not None:
            pairs = zip(used, self._last_used, strict=True)
            self._growth += sum(max(0, now - before) for now, before in pairs)
        self._last_used = used
        return self._growth


def _slice(steps: Counting, stop: Event) -> tuple[scan.Counted | None, float]:
    """Run steps for a slice; return the count after the last step, and the processor time."""
    end, begin = time.monotonic() + _SLICE_SECONDS, time.thread_time()
    counted = None
    try:
        next(steps)
        while time.monotonic() < end and not stop.is_set():
            next(steps)
    except StopIteration as last:
        counted = last.value
    return counted, time.thread_time() - begin
