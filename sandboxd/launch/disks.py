# SPDX-License-Identifier: Apache-2.0
"""Has sandboxes' disk images made, mounted and unmounted, by builders (launch/builders.py)."""

from __future__ import annotations

import os
from collections.abc import Collection

from sandboxd.errors import InternalError, LimitBelowUsage, LimitUnsupported
from sandboxd.isolation import disks
from sandboxd.launch.builders import Builders
from sandboxd.osutil.privileges import Privileges
from sandboxd.protocol.building import (
    Done,
    Failed,
    Failure,
    HoldDisk,
    Order,
    RemoveAllDisks,
    RemoveDisk,
    RemoveOtherDisks,
)


class Disks:
    """File systems of sandboxes' own; fits workspace.own_disks.Mounts."""

    def __init__(self, builders: Builders, runtime_directory: str, privileges: Privileges) -> None:
        self._builders = builders
        self._is_root = privileges.is_root
        self._root = disks.root_of(runtime_directory)

    def directory(self, name: str) -> str:
        return os.path.join(self._root, name)

    async def hold(self, name: str, *, image: str, size_bytes: int, gid: int) -> None:
        """Make, mount or resize a disk so that size_bytes are usable.

        Raises LimitBelowUsage where more is in use, LimitUnsupported where this host cannot enlarge
        disks, and InternalError.
        """
        order = HoldDisk(self._root, name, image, size_bytes, gid)
        answer = await self._builders.ask(order, Done)
        if isinstance(answer, Done):
            return
        if answer.kind is Failure.FULL:
            raise LimitBelowUsage(
                f"cannot lower disk_bytes to {size_bytes}: {answer.text}",
                hint="delete something inside first",
                details={"limit": "disk_bytes", "asked": size_bytes},
            )
        if answer.kind is Failure.PERMISSION:
            raise LimitUnsupported(
                f"cannot make room for {size_bytes} bytes: {answer.text}",
                hint="an image is enlarged with CAP_SYS_RESOURCE only; make another sandbox",
                details={"limit": "disk_bytes", "asked": size_bytes},
            )
        raise InternalError(f"cannot make or mount the image {image}: {answer.text}")

    async def remove(self, name: str) -> None:
        await self._do(RemoveDisk(self._root, name))

    async def remove_others(self, kept: Collection[str]) -> None:
        await self._do(RemoveOtherDisks(self._root, tuple(kept)))

    async def remove_all(self) -> None:
        """Unmount all disks, at the end of all work."""
        if self._is_root:
            await self._do(RemoveAllDisks(self._root))

    async def _do(self, order: Order) -> None:
        answer = await self._builders.ask(order, Done)
        if isinstance(answer, Failed):
            raise InternalError(f"cannot unmount sandboxes' disks: {answer.text}")
