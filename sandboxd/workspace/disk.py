# SPDX-License-Identifier: Apache-2.0
"""How much of the disk sandboxes have and may have, and how that is known and held here."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from threading import Event

from sandboxd.errors import ConfigError, HostDiskFull
from sandboxd.model import EnforcedBy, Enforcement
from sandboxd.quantity import MAX_BYTES, format_bytes
from sandboxd.workspace import scan
from sandboxd.workspace.quota import UserQuota
from sandboxd.workspace.workers import finished

_DEFAULT_FLOOR_BYTES = 1 << 30
_DEFAULT_FLOOR_SHARE = 0.05


class DiskMeans(StrEnum):
    """By what a sandbox's disk limit is to be held; auto: user quota, else by counting."""

    AUTO = "auto"
    QUOTA = "quota"
    IMAGE = "image"
    COUNT = "count"


class Disk:
    """The file system of the state directory.

    floor_bytes: free space below which there are no new sandboxes; None = the lesser of 1 GiB and
    5 % of it.
    """

    def __init__(
        self, directory: str, floor_bytes: int | None, means: DiskMeans = DiskMeans.AUTO
    ) -> None:
        self._means = means
        self._directory = directory
        self._floor_bytes = floor_bytes
        self._is_root = os.geteuid() == 0
        self._quota = UserQuota(directory)
        self._obstacle: str | None = "not looked at yet"
        self._growth = 0
        self._last_used: int | None = None
        self._stop = Event()
        # One: it is the bound on the time that counting takes.
        self._scanner = ThreadPoolExecutor(1, thread_name_prefix="scanner")

    def open(self) -> None:
        """Find out what holds a sandbox's limit here. Raises ConfigError where that is not what
        is asked for."""
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
        """Who holds it, in words."""
        if self._obstacle is None:
            return Enforcement(
                EnforcedBy.KERNEL,
                "user quota of the sandbox's uid: bytes, and an inode for each 4 KiB of them",
            )
        return Enforcement(
            EnforcedBy.SUPERVISOR,
            "home and /tmp are counted while the disk fills up; RLIMIT_FSIZE bounds each file; no "
            f"kernel quota: {self._obstacle}",
            "counted at most 4 times a second, with at most 2 % of a core",
        )

    def check_floor(self) -> None:
        """Raise HostDiskFull where there is too little room for another sandbox."""
        found = os.statvfs(self._directory)
        free, whole = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        floor = self._floor_bytes
        if floor is None:
            floor = min(_DEFAULT_FLOOR_BYTES, int(whole * _DEFAULT_FLOOR_SHARE))
        if free < floor:
            raise HostDiskFull(
                f"cannot create a sandbox: {format_bytes(free)} of the disk are free, and "
                f"{format_bytes(floor)} are kept free",
                hint="free space on the state directory's file system, or release sandboxes",
                details={"free_bytes": free, "floor_bytes": floor, "path": self._directory},
            )

    def limit(self, uid: int, size_bytes: int) -> None:
        """Have the kernel hold it, where it can. Raises OSError."""
        if self.holds:
            self._quota.limit(uid, size_bytes)

    def lift(self, uid: int) -> None:
        """The uid is about to be another's. Raises OSError."""
        if self.holds:
            self._quota.lift(uid)

    async def used_bytes(self, roots: Sequence[str], uid: int) -> tuple[int, float]:
        """What the sandbox has, by the kernel's books, else counted, and the processor time that
        this took. More than any limit for a tree that cannot be counted. Raises OSError."""
        if self.holds:
            return await asyncio.to_thread(self._quota.used, uid), 0.0
        seen_uid = uid if self._is_root else None
        return await finished(
            asyncio.get_running_loop().run_in_executor(
                self._scanner, _count, roots, seen_uid, self._stop
            )
        )

    async def growth_bytes(self) -> int:
        """What the whole file system has grown by since the start, what shrank it left out."""
        return await asyncio.to_thread(self._growth_bytes)

    def _growth_bytes(self) -> int:
        found = os.statvfs(self._directory)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        if self._last_used is not None:
            self._growth += max(0, used - self._last_used)
        self._last_used = used
        return self._growth


def _count(roots: Sequence[str], uid: int | None, stop: Event) -> tuple[int, float]:
    begin = time.thread_time()
    try:
        used = scan.used_bytes(roots, uid, stop)
    except scan.Uncountable:
        used = MAX_BYTES
    return used, time.thread_time() - begin
