# SPDX-License-Identifier: Apache-2.0
"""Sandboxes whose files are in a disk image: which, where, and how full."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from typing import Protocol

from sandboxd.core.model import EnforcedBy, Enforcement, Sandbox
from sandboxd.errors import ConfigError, LimitBelowUsage, SandboxdError
from sandboxd.osutil.files import remove_file
from sandboxd.osutil.space import space_of

_IMAGE = "disk.img"
# A file of root's at the image's top that takes the blocks beyond the sandbox's limit
# (isolation/disks.py).
_BALLAST = "ballast"
_PROBE = "probe"
_PROBE_BYTES = 8 << 20


class Mounts(Protocol):
    """Makes, mounts and unmounts disk images."""

    def directory(self, name: str) -> str:
        """Return the mount point of the image `name`."""

    async def hold(self, name: str, *, image: str, size_bytes: int, gid: int) -> None:
        """Make, mount or resize the image, so that `size_bytes` fit.

        gid: the group that may pass the image's top. Raises LimitBelowUsage where more is in use,
        and SandboxdError.
        """

    async def remove(self, name: str) -> None:
        """Unmount an image; fine where none is mounted."""

    async def remove_others(self, kept: Collection[str]) -> None:
        """Unmount all images but `kept`."""


class OwnDisks:
    """The images below <state-dir>/sandboxes/<id>/."""

    def __init__(self, root: str, mounts: Mounts) -> None:
        self._root = root
        self._mounts = mounts
        self._ids: set[str] = set()

    def open(self) -> None:
        """Find the images of an earlier daemon."""
        for name in os.listdir(self._root):
            if os.path.exists(self._image(name)):
                self._ids.add(name)

    async def try_out(self) -> None:
        """Make, mount and see a test image. Raises ConfigError where this host cannot."""
        image = os.path.join(os.path.dirname(self._root), f"{_PROBE}.img")
        directory = self._mounts.directory(_PROBE)
        problem: str | None = None
        try:
            await self._mounts.hold(_PROBE, image=image, size_bytes=_PROBE_BYTES, gid=0)
            if not await asyncio.to_thread(os.path.ismount, directory):
                problem = f"what is mounted on {directory} cannot be seen by the daemon"
        except SandboxdError as exc:
            problem = exc.message
        finally:
            await self._mounts.remove(_PROBE)
            remove_file(image)
        if problem is not None:
            raise ConfigError(
                f"cannot start with SANDBOX_DISK_MEANS=image: {problem}",
                hint="it needs root, loop devices, ext4 and e2fsprogs; or use another means",
            )

    def enforcement(self) -> Enforcement:
        """Return how images hold a limit, in words."""
        return Enforcement(
            EnforcedBy.KERNEL,
            "an ext4 image of its own on a loop device: bytes, and an inode for each 4 KiB of them",
        )

    def has(self, sandbox_id: str) -> bool:
        """Return whether a sandbox has an image."""
        return sandbox_id in self._ids

    def directory(self, sandbox_id: str) -> str:
        """Return the mount point of a sandbox's image."""
        return self._mounts.directory(sandbox_id)

    async def hold(self, sandbox: Sandbox, size_bytes: int) -> None:
        """Give a sandbox an image of `size_bytes`. Raises LimitBelowUsage, SandboxdError."""
        self._ids.add(sandbox.id)
        image = self._image(sandbox.id)
        try:
            await self._mounts.hold(sandbox.id, image=image, size_bytes=size_bytes, gid=sandbox.uid)
        except LimitBelowUsage as exc:
            exc.details["current"] = await asyncio.to_thread(self.used_bytes, sandbox.id)
            raise

    async def remove(self, sandbox_id: str) -> None:
        """Unmount and delete a sandbox's image; fine where the sandbox has none."""
        if sandbox_id in self._ids:
            await self._mounts.remove(sandbox_id)
            for path in (self._image(sandbox_id), f"{self._image(sandbox_id)}.new"):
                remove_file(path)
            self._ids.discard(sandbox_id)

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Unmount the images of sandboxes outside `sandbox_ids`; the caller removes the files."""
        await self._mounts.remove_others(sandbox_ids)
        self._ids &= set(sandbox_ids)

    def used_bytes(self, sandbox_id: str) -> int:
        """Return the bytes that the sandbox's files take in the image. Raises OSError."""
        top = self.directory(sandbox_id)
        ballast = os.stat(os.path.join(top, _BALLAST), follow_symlinks=False)
        return space_of(top).used_bytes - ballast.st_size

    def _image(self, sandbox_id: str) -> str:
        return os.path.join(self._root, sandbox_id, _IMAGE)
