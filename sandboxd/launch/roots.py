# SPDX-License-Identifier: Apache-2.0
"""Has networks and roots made, tried out and taken away, by builders (launch/builders.py)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

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

_PROBE_SHM_BYTES = 1 << 20
_BINDS_SECONDS = 5.0
_REMEDIES = {
    "bubblewrap": "install bubblewrap, on Debian: apt-get install bubblewrap",
    "other": "see the text; namespaces must be enabled in the kernel and mounts allowed",
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
        self._system_paths = list(system_paths)
        self._etc_hidden = list(etc_hidden)
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
        answer = await self._builders.ask(
            {"op": "try_layers", **self._place("probe", Isolation.STANDARD, Network.HOST)}
        )
        self._layers = answer["ok"]
        self.notes = () if answer["ok"] else (_NO_LAYERS.format(answer["text"]),)
        await self._try_host_root()
        root = await self._try_out(Isolation.STANDARD, Network.HOST)
        if not root:
            await self._try_binds()
        network = await self._try_out(Isolation.BASIC, Network.LOOPBACK)
        return root, network

    async def build(
        self, sandbox: Sandbox, *, home: str, tmp: str, files: Mapping[str, str]
    ) -> tuple[Bind, ...]:
        wanted = pins.kinds(sandbox.isolation, sandbox.network)
        if not wanted:
            return sandbox.binds
        order = {
            **self._place(sandbox.id, sandbox.isolation, sandbox.network),
            "image": self._image(sandbox),
            "files": dict(files),
            "home": home,
            "tmp": tmp,
            "shm_bytes": reports.shm_bytes(sandbox.limits),
            "binds": [
                {"source": bind.source, "target": bind.target, "writable": bind.writable}
                for bind in sandbox.binds
            ],
            "uid": sandbox.uid,
            "owner_uid": sandbox.owner_uid,
            # Made by a daemon that ended before the answer was kept: no command ran there yet.
            "anew": any(bind.ownership is None for bind in sandbox.binds),
        }
        answer = await self._builders.ask({"op": "build", **order})
        if answer["ok"]:
            return _owned(sandbox.binds, answer["binds"])
        if answer["kind"] == "image":
            raise InvalidRequest.field("rootfs", answer["text"])
        if answer["kind"] == "bind":
            raise InvalidRequest.field("binds", answer["text"])
        raise InternalError(f"cannot make the root of sandbox {sandbox.id}: {answer['text']}")

    async def remove(self, sandbox: Sandbox) -> None:
        if pins.kinds(sandbox.isolation, sandbox.network):
            await self._do({"op": "remove", "pins_directory": os.path.join(self._root, sandbox.id)})

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        if self._privileges.is_root:
            kept = list(sandbox_ids)
            await self._do({"op": "remove_others", "pins_root": self._root, "kept": kept})

    async def remove_unused(self) -> None:
        """Remove the private tmpfs directories below the runtime directory that are not used."""
        if self._privileges.is_root:
            roots = [self._root, disks.root_of(self._runtime)]
            await self._do({"op": "remove_unused", "roots": roots})

    async def remove_all(self) -> None:
        """Unpin all namespaces, at the end of all work."""
        if self._privileges.is_root:
            await self._do({"op": "remove_all", "pins_root": self._root})

    # -- private

    def _place(self, name: str, isolation: Isolation, network: Network) -> dict[str, Any]:
        return {
            "pins_directory": os.path.join(self._root, name),
            "pins": list(pins.kinds(isolation, network)),
            "isolation": isolation.value,
            "network": network.value,
            "system_paths": self._system_paths,
            "etc_hidden": self._etc_hidden,
            "files": {},
            "layers": self._layers,
            "home_inside": HOME_INSIDE,
        }

    def _image(self, sandbox: Sandbox) -> str | None:
        if sandbox.rootfs is None:
            return None
        if self._images is None:
            raise InvalidRequest.field("rootfs", "this server has no images: see images_directory")
        return os.path.join(self._images, sandbox.rootfs)

    async def _try_host_root(self) -> None:
        order = {
            "op": "try_host_root",
            "pins_root": self._root,
            "disks_root": disks.root_of(self._runtime),
            "tmp_directory": os.path.join(self._runtime, "executions"),
            "record_directory": self._runtime,
            "shm_bytes": _PROBE_SHM_BYTES,
        }
        answer = await self._builders.ask(order)
        self.has_private_mounts = answer["ok"]
        if not answer["ok"]:
            self.notes = (*self.notes, _NO_PRIVATE_MOUNTS.format(answer["text"]))

    async def _try_out(self, isolation: Isolation, network: Network) -> tuple[MissingFeature, ...]:
        # Any directory of the daemon's will do: the holder has no right to use it and ends at once.
        directory = os.path.join(self._runtime, "executions")
        order = {
            "op": "try",
            **self._place(f"probe-{new_id()}", isolation, network),
            "image": None,
            "home": directory,
            "tmp": directory,
            "shm_bytes": _PROBE_SHM_BYTES,
            "binds": [],
            "uid": self._privileges.uid,
            "owner_uid": self._privileges.uid,
            "anew": False,
        }
        answer = await self._builders.ask(order)
        if answer["ok"]:
            return ()
        if answer["kind"] == "permission":
            return (MissingFeature(answer["text"], remedy(Need.MOUNTS, place())),)
        return (MissingFeature(answer["text"], _REMEDIES.get(answer["kind"], _REMEDIES["other"])),)

    async def _try_binds(self) -> None:
        """Note which of the bind paths keep the host's owners."""
        listed = list(self._bind_paths.items())
        for start in range(0, len(listed), MAX_BINDS):
            some = [{"source": path, "writable": rw} for path, rw in listed[start:][:MAX_BINDS]]
            order = {"op": "try_binds", "binds": some, "uid": DEFAULT_UID_FIRST}
            try:
                async with asyncio.timeout(_BINDS_SECONDS):
                    answer = await self._builders.ask(order)
            except TimeoutError:
                # A file system that does not answer must not keep the daemon from starting.
                answer = {"ok": False, "text": "it does not answer"}
            said = answer["notes"] if answer["ok"] else [answer["text"]] * len(some)
            self.notes += tuple(
                _NOT_MAPPED.format(bind["source"], text)
                for bind, text in zip(some, said, strict=True)
                if text
            )

    async def _do(self, order: dict[str, Any]) -> None:
        answer = await self._builders.ask(order)
        if not answer["ok"]:
            raise InternalError(f"cannot take away what sandboxes had: {answer['text']}")


def _owned(binds: Sequence[Bind], said: list[list[str]] | None) -> tuple[Bind, ...]:
    """Return the binds with the builder's verdicts; unchanged for None."""
    if said is None:
        return tuple(binds)
    return tuple(
        replace(bind, ownership=Ownership(kind), ownership_detail=detail)
        for bind, (kind, detail) in zip(binds, said, strict=True)
    )
