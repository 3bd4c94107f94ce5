# SPDX-License-Identifier: Apache-2.0
"""Has networks and roots made, tried out and taken away, by builders (launch/builders.py)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sandboxd.cgroup.host import place
from sandboxd.core.binds import MAX_BINDS
from sandboxd.core.levels import HOME_INSIDE, MissingFeature
from sandboxd.core.model import Bind, Isolation, Network, Ownership, Sandbox
from sandboxd.core.names import new_id
from sandboxd.core.policy import DEFAULT_UID_FIRST
from sandboxd.core.remedies import Need, remedy
from sandboxd.errors import InternalError, InvalidRequest
from sandboxd.isolation import disks, pins
from sandboxd.launch import reports
from sandboxd.launch.builders import Builders
from sandboxd.osutil.privileges import Privileges
from sandboxd.protocol.building import (
    BindSpec,
    BindVerdict,
    Build,
    Built,
    Done,
    Failed,
    Failure,
    HostParts,
    Notes,
    Order,
    Remove,
    RemoveAll,
    RemoveOthers,
    RemoveUnused,
    RootSpec,
    TryBinds,
    TryBuild,
    TryHostRoot,
    TryLayers,
)
from sandboxd.protocol.specification import HostRoot

_PROBE_SHM_BYTES = 1 << 20
_BINDS_SECONDS = 5.0
_REMEDIES = {
    Failure.BUBBLEWRAP: "install bubblewrap, on Debian: apt-get install bubblewrap",
    Failure.OTHER: "see the text; namespaces must be enabled in the kernel and mounts allowed",
}
_NO_LAYERS = "file locks and watches: sandboxes see each other's on the host's files: {}"
_NOT_MAPPED = "binds of {}: sandboxes see the host's owners: {}"
_NO_PRIVATE_MOUNTS = (
    "private mounts: at basic commands share the host's /tmp, /dev/shm and /proc: {}"
)


class Roots:
    """Roots, networks and binds of sandboxes; fits ports.scheme.Roots.

    images: the folder of the roots that a sandbox may name, None = no images. system_paths: further
    paths of the host in a root, read-only; etc_hidden: names of /etc left out. bind_paths: the
    paths that sandboxes may bind, with whether for writing.
    """

    def __init__(
        self,
        builders: Builders,
        runtime_directory: str,
        privileges: Privileges,
        *,
        images: str | None,
        system_paths: Collection[str],
        etc_hidden: Collection[str],
        bind_paths: Mapping[str, bool],
    ) -> None:
        self._builders = builders
        self._runtime = runtime_directory
        self._privileges = privileges
        self._images = images
        self._system_paths = tuple(system_paths)
        self._etc_hidden = tuple(etc_hidden)
        self._bind_paths = dict(bind_paths)
        self._root = pins.root_of(runtime_directory)
        self._layers = False
        # What this host's roots lack, in words, though roots can be made.
        self.notes: tuple[str, ...] = ()
        # Whether an execution at basic can have mounts of its own.
        self.has_private_mounts = False

    async def missing(self) -> tuple[tuple[MissingFeature, ...], tuple[MissingFeature, ...]]:
        """Return the features that a root and a network namespace lack, by making both."""
        if not self._privileges.is_root:
            way = remedy(Need.ROOT, place())
            not_root = (MissingFeature("root: mounts and namespaces", way),)
            return not_root, not_root
        answer = await self._builders.ask(TryLayers(self._root, self._host_parts()), Done)
        self._layers = isinstance(answer, Done)
        if isinstance(answer, Failed):
            self.notes = (_NO_LAYERS.format(answer.text),)
        await self._try_host_root()
        root = await self._try_out(Isolation.STANDARD, Network.HOST)
        if not root:
            await self._try_binds()
        network = await self._try_out(Isolation.BASIC, Network.LOOPBACK)
        return root, network

    async def build(
        self, sandbox: Sandbox, *, home: str, tmp_directory: str, identity_files: Mapping[str, str]
    ) -> tuple[Bind, ...]:
        kinds = pins.kinds(sandbox.isolation, sandbox.network)
        if not kinds:
            return sandbox.binds
        order = Build(
            pins_directory=os.path.join(self._root, sandbox.id),
            pins=kinds,
            loopback=sandbox.network is Network.LOOPBACK,
            root=RootSpec(
                host=self._host_parts(
                    identity_files, is_strict=sandbox.isolation is Isolation.STRICT
                ),
                image=self._image(sandbox),
                layers=self._layers,
                home=home,
                home_inside=HOME_INSIDE,
                tmp_directory=tmp_directory,
                shm_bytes=reports.shm_bytes(sandbox.limits),
                binds=tuple(BindSpec(b.source, b.target, b.writable) for b in sandbox.binds),
            ),
            uid=sandbox.uid,
            owner_uid=sandbox.owner_uid,
            # Made by a daemon that ended before the answer was kept: no command ran there yet.
            anew=any(bind.ownership is None for bind in sandbox.binds),
        )
        answer = await self._builders.ask(order, Built)
        if isinstance(answer, Built):
            return _owned(sandbox.binds, answer.binds)
        if answer.kind is Failure.IMAGE:
            raise InvalidRequest.field("rootfs", answer.text)
        if answer.kind is Failure.BIND:
            raise InvalidRequest.field("binds", answer.text)
        raise InternalError(f"cannot make the root of sandbox {sandbox.id}: {answer.text}")

    async def remove(self, sandbox: Sandbox) -> None:
        if pins.kinds(sandbox.isolation, sandbox.network):
            await self._do(Remove(os.path.join(self._root, sandbox.id)))

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        if self._privileges.is_root:
            await self._do(RemoveOthers(self._root, tuple(sandbox_ids)))

    async def remove_unused(self) -> None:
        """Remove the private tmpfs directories below the runtime directory that are not used."""
        if self._privileges.is_root:
            await self._do(RemoveUnused((self._root, disks.root_of(self._runtime))))

    async def remove_all(self) -> None:
        """Unpin all namespaces, at the end of all work."""
        if self._privileges.is_root:
            await self._do(RemoveAll(self._root))

    # -- private

    def _host_parts(
        self, identity_files: Mapping[str, str] | None = None, *, is_strict: bool = False
    ) -> HostParts:
        return HostParts(is_strict, self._system_paths, self._etc_hidden, identity_files or {})

    def _image(self, sandbox: Sandbox) -> str | None:
        if sandbox.rootfs is None:
            return None
        if self._images is None:
            raise InvalidRequest.field("rootfs", "this server has no images: see images_directory")
        return os.path.join(self._images, sandbox.rootfs)

    async def _try_host_root(self) -> None:
        root = HostRoot(
            pins_root=self._root,
            disks_root=disks.root_of(self._runtime),
            tmp_directory=os.path.join(self._runtime, "executions"),
            record_directory=self._runtime,
            identity_files={},
            shm_bytes=_PROBE_SHM_BYTES,
            terminals=1,
        )
        answer = await self._builders.ask(TryHostRoot(root), Done)
        self.has_private_mounts = isinstance(answer, Done)
        if isinstance(answer, Failed):
            self.notes = (*self.notes, _NO_PRIVATE_MOUNTS.format(answer.text))

    async def _try_out(self, isolation: Isolation, network: Network) -> tuple[MissingFeature, ...]:
        # Any directory of the daemon's will do: the holder has no right to use it and ends at once.
        directory = os.path.join(self._runtime, "executions")
        order = Build(
            pins_directory=os.path.join(self._root, f"probe-{new_id()}"),
            pins=pins.kinds(isolation, network),
            loopback=network is Network.LOOPBACK,
            root=RootSpec(
                host=self._host_parts(),
                image=None,
                layers=self._layers,
                home=directory,
                home_inside=HOME_INSIDE,
                tmp_directory=directory,
                shm_bytes=_PROBE_SHM_BYTES,
                binds=(),
            ),
            uid=self._privileges.uid,
            owner_uid=self._privileges.uid,
            anew=False,
        )
        answer = await self._builders.ask(TryBuild(order), Done)
        if isinstance(answer, Done):
            return ()
        if answer.kind is Failure.PERMISSION:
            return (MissingFeature(answer.text, remedy(Need.MOUNTS, place())),)
        return (MissingFeature(answer.text, _REMEDIES.get(answer.kind, _REMEDIES[Failure.OTHER])),)

    async def _try_binds(self) -> None:
        """Note which of the bind paths keep the host's owners."""
        listed = [BindSpec(path, path, rw) for path, rw in self._bind_paths.items()]
        for start in range(0, len(listed), MAX_BINDS):
            some = tuple(listed[start:][:MAX_BINDS])
            try:
                async with asyncio.timeout(_BINDS_SECONDS):
                    answer = await self._builders.ask(TryBinds(some, DEFAULT_UID_FIRST), Notes)
            except TimeoutError:
                # A file system that does not answer must not keep the daemon from starting.
                answer = Failed(Failure.OTHER, "it does not answer")
            said = answer.notes if isinstance(answer, Notes) else (answer.text,) * len(some)
            self.notes += tuple(
                _NOT_MAPPED.format(bind.source, text)
                for bind, text in zip(some, said, strict=True)
                if text
            )

    async def _do(self, order: Order) -> None:
        answer = await self._builders.ask(order, Done)
        if isinstance(answer, Failed):
            raise InternalError(f"cannot take away what sandboxes had: {answer.text}")


def _owned(binds: Sequence[Bind], said: Sequence[BindVerdict] | None) -> tuple[Bind, ...]:
    """Return the binds with the builder's verdicts; unchanged for None."""
    if said is None:
        return tuple(binds)
    return tuple(
        replace(
            bind,
            ownership=Ownership.MAPPED if one.is_mapped else Ownership.HOST,
            ownership_detail=one.detail,
        )
        for bind, one in zip(binds, said, strict=True)
    )
