# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of the builder: gives orders, waits for the answers."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import ExitStack, suppress
from typing import Any

from sandboxd.core.turns import Turn, Turns
from sandboxd.errors import InternalError, OperationTimedOut, host_lacks
from sandboxd.launch.connection import SpawnerUnreachable
from sandboxd.launch.spawner import SpawnerClient
from sandboxd.osutil.descriptors import memory_file
from sandboxd.osutil.objects import decode, encode
from sandboxd.osutil.pidfd import kill
from sandboxd.protocol import records
from sandboxd.protocol.spawning import Build, Done, Refused

_ANSWER_SECONDS = 45.0
_ATTEMPTS = 3
# Builders at work at a time: each is a process or three.
_BUILDERS = 8
_REMOVERS = 4
# About a second's work, several times what a removal reads before the first removal.
_ENTRIES_OF_A_TURN = 50_000


class Builders:
    """Short-lived processes for work that the daemon must not or should not do itself."""

    def __init__(self, spawner: SpawnerClient) -> None:
        self._spawner = spawner
        self._slots = asyncio.Semaphore(_BUILDERS)
        self._removers = Turns(_REMOVERS)

    async def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to an order: {"ok"}, or "kind" and "text" of a failure.

        Raises InternalError, OperationTimedOut and SpawnerUnreachable.
        """
        async with self._slots:
            for _ in range(_ATTEMPTS - 1):
                with suppress(SpawnerUnreachable):
                    return await self._ask_once(order, _ANSWER_SECONDS)
            return await self._ask_once(order, _ANSWER_SECONDS)

    async def remove_tree(self, path: str, turn: Turn) -> None:
        """Remove a tree, however many turns the removal takes; cancellation stops the removal.

        Raises as `ask`, and InternalError where a part of the tree stays.
        """
        order = {"op": "remove_tree", "path": path, "most": _ENTRIES_OF_A_TURN}
        has_ended = False
        while not has_ended:
            async with self._removers.one(turn):
                answer = await self._ask_once(order, None)
            if not answer["ok"]:
                raise InternalError(f"cannot remove {path}: {answer['text']}")
            has_ended = answer["has_ended"]

    async def _ask_once(self, order: dict[str, Any], seconds: float | None) -> dict[str, Any]:
        """Raises SpawnerUnreachable when no builder has done the order or will do it."""
        with ExitStack() as close:
            order_fd = memory_file("order", encode(order))
            close.callback(os.close, order_fd)
            read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            close.callback(os.close, read_fd)
            try:
                answer, fds = await self._spawner.ask(Build(), [order_fd, write_fd], Done)
            except SpawnerUnreachable:
                os.close(write_fd)
                # The spawner may have forked a builder before going away; that builder would undo
                # a second builder's work.
                late = await _answer(read_fd, None, _ANSWER_SECONDS)
                if late is None:
                    raise
                return late
            except BaseException:
                os.close(write_fd)
                raise
            os.close(write_fd)
            if isinstance(answer, Refused):
                raise InternalError(f"cannot start a builder: {answer.text}")
            if not fds:
                # The kernel drops what we have no descriptors for (unix(7), MSG_CTRUNC).
                raise host_lacks("cannot start a builder", OSError(errno.EMFILE, ""))
            close.callback(os.close, fds[0])
            done = await _answer(read_fd, fds[0], seconds)
            if done is None:
                raise InternalError("cannot make or take away what a sandbox has: the builder died")
            return done


async def _answer(read_fd: int, pidfd: int | None, seconds: float | None) -> dict[str, Any] | None:
    """Return the builder's answer; None where the builder ended without an answer.

    seconds: how long to wait before the builder is killed; None = for ever. Raises
    OperationTimedOut.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(read_fd, readable.set)
    try:
        async with asyncio.timeout(seconds):
            await readable.wait()
    except TimeoutError as exc:
        if pidfd is not None:
            kill(pidfd)
        raise OperationTimedOut("cannot go on: the builder of a sandbox does not end") from exc
    finally:
        loop.remove_reader(read_fd)
    data = os.read(read_fd, records.MAX_BUILDER_ANSWER_BYTES)
    return decode(data) if data else None
