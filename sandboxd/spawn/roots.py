# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of the builder: has networks and roots made, tried out and taken away."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from sandboxd.errors import InternalError, InvalidRequest, OperationTimedOut, host_lacks
from sandboxd.isolation import pins
from sandboxd.levels import HOME_INSIDE, Lack
from sandboxd.model import Isolation, Network, Sandbox
from sandboxd.names import new_id
from sandboxd.spawn import records, reports
from sandboxd.spawn.builder import MAX_ANSWER_BYTES
from sandboxd.spawn.client import SpawnerClient, memory_file
from sandboxd.spawn.connection import SpawnerUnreachable

_ANSWER_SECONDS = 45.0
_ATTEMPTS = 3
# Builders at work at a time: each is a process or three.
_BUILDERS = 8
_PROBE_SHM_BYTES = 1 << 20
_REMEDIES = {
    "bubblewrap": "install bubblewrap, on Debian: apt-get install bubblewrap",
    "permission": "give sandboxd CAP_SYS_ADMIN: it must not run in an unprivileged container",
    "other": "see the text; namespaces must be enabled in the kernel and mounts allowed",
}
_NO_LAYERS = "file locks and watches: sandboxes see each other's on the host's files: {}"
_NOT_ROOT = (Lack("root: mounts and namespaces", "run sandboxd as root"),)


class Roots:
    """What sandboxes have of their own; fits ports.Roots.

    images: the folder of the roots that a sandbox may name, None = there is none. system_paths:
    what else of the host is in a root, read-only.
    """

    def __init__(
        self, spawner: SpawnerClient, *, images: str | None, system_paths: Collection[str]
    ) -> None:
        self._spawner = spawner
        self._images = images
        self._system_paths = list(system_paths)
        self._root = pins.root_of(spawner.runtime_directory)
        self._layers = False
        # What roots lack here although they can be had, in words.
        self.notes: tuple[str, ...] = ()
        self._slots = asyncio.Semaphore(_BUILDERS)

    async def missing(self) -> tuple[tuple[Lack, ...], tuple[Lack, ...]]:
        """What a root and what a network namespace lack here, by making one of each."""
        if os.geteuid() != 0:
            return _NOT_ROOT, _NOT_ROOT
        answer = await self._ask(
            {"op": "try_layers", **self._place("probe", Isolation.STANDARD, Network.HOST)}
        )
        self._layers = answer["ok"]
        self.notes = () if answer["ok"] else (_NO_LAYERS.format(answer["text"]),)
        root = await self._try_out(Isolation.STANDARD, Network.HOST)
        network = await self._try_out(Isolation.BASIC, Network.LOOPBACK)
        return root, network

    async def build(
        self, sandbox: Sandbox, *, home: str, tmp: str, files: Mapping[str, str]
    ) -> None:
        """Make what its isolation and network ask for, unless it is there."""
        wanted = pins.kinds(sandbox.isolation, sandbox.network)
        if not wanted:
            return
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
        }
        answer = await self._ask({"op": "build", **order})
        if answer["ok"]:
            return
        if answer["kind"] == "image":
            raise InvalidRequest.field("rootfs", answer["text"])
        raise InternalError(f"cannot make the root of sandbox {sandbox.id}: {answer['text']}")

    async def remove(self, sandbox: Sandbox) -> None:
        """Let go of it; fine where there is none."""
        if pins.kinds(sandbox.isolation, sandbox.network):
            await self._do({"op": "remove", "pins_directory": os.path.join(self._root, sandbox.id)})

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """What an earlier daemon made for sandboxes that are not among these."""
        if os.geteuid() == 0:
            kept = list(sandbox_ids)
            await self._do({"op": "remove_others", "pins_root": self._root, "kept": kept})

    async def remove_all(self) -> None:
        """At the end of all work: nothing of ours stays mounted."""
        if os.geteuid() == 0:
            await self._do({"op": "remove_all", "pins_root": self._root})

    # -- private

    def _place(self, name: str, isolation: Isolation, network: Network) -> dict[str, Any]:
        return {
            "pins_directory": os.path.join(self._root, name),
            "pins": list(pins.kinds(isolation, network)),
            "isolation": isolation.value,
            "network": network.value,
            "system_paths": self._system_paths,
            "layers": self._layers,
            "home_inside": HOME_INSIDE,
        }

    def _image(self, sandbox: Sandbox) -> str | None:
        if sandbox.rootfs is None:
            return None
        if self._images is None:
            raise InvalidRequest.field("rootfs", "this server has no images: see images_directory")
        return os.path.join(self._images, sandbox.rootfs)

    async def _try_out(self, isolation: Isolation, network: Network) -> tuple[Lack, ...]:
        # Any directory of ours will do: the holder has no right to it and ends at once.
        directory = os.path.join(self._spawner.runtime_directory, "executions")
        order = {
            "op": "try",
            **self._place(f"probe-{new_id()}", isolation, network),
            "image": None,
            "files": {},
            "home": directory,
            "tmp": directory,
            "shm_bytes": _PROBE_SHM_BYTES,
            "binds": [],
        }
        answer = await self._ask(order)
        if answer["ok"]:
            return ()
        return (Lack(answer["text"], _REMEDIES.get(answer["kind"], _REMEDIES["other"])),)

    async def _do(self, order: dict[str, Any]) -> None:
        answer = await self._ask(order)
        if not answer["ok"]:
            raise InternalError(f"cannot take away what sandboxes had: {answer['text']}")

    async def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        async with self._slots:
            for _ in range(_ATTEMPTS - 1):
                with suppress(SpawnerUnreachable):
                    return await self._ask_once(order)
            return await self._ask_once(order)

    async def _ask_once(self, order: dict[str, Any]) -> dict[str, Any]:
        """Raises SpawnerUnreachable when no builder is at it any more, nor has done it."""
        with ExitStack() as close:
            order_fd = memory_file("order", records.encode(order))
            close.callback(os.close, order_fd)
            read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            close.callback(os.close, read_fd)
            try:
                answer, fds = await self._spawner.ask({"op": "build"}, [order_fd, write_fd])
            except SpawnerUnreachable:
                os.close(write_fd)
                # It may have forked one before it went away, which would undo another one's work.
                late = await _answer(read_fd, None)
                if late is None:
                    raise
                return late
            except BaseException:
                os.close(write_fd)
                raise
            os.close(write_fd)
            if not answer["ok"]:
                raise InternalError(f"cannot start a builder: {answer['text']}")
            if not fds:
                # The kernel drops what we have no descriptors for (unix(7), MSG_CTRUNC).
                raise host_lacks("cannot start a builder", OSError(errno.EMFILE, ""))
            close.callback(os.close, fds[0])
            done = await _answer(read_fd, fds[0])
            if done is None:
                raise InternalError("cannot make or take away what a sandbox has: the builder died")
            return done


async def _answer(read_fd: int, pidfd: int | None) -> dict[str, Any] | None:
    """What the builder says, None where it ended without a word; killed where it says nothing in
    time."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(read_fd, readable.set)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await readable.wait()
    except TimeoutError as exc:
        if pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        raise OperationTimedOut("cannot go on: the builder of a sandbox does not end") from exc
    finally:
        loop.remove_reader(read_fd)
    data = os.read(read_fd, MAX_ANSWER_BYTES)
    if not data:
        return None
    answer: dict[str, Any] = json.loads(data)
    return answer
