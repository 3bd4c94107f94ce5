# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of the builder: gives orders, waits for the answers."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import ExitStack, suppress
from typing import TypeVar

from sandboxd.core.turns import Turn, Turns
from sandboxd.errors import InternalError, OperationTimedOut, host_lacks
from sandboxd.launch.connection import SpawnerUnreachable
from sandboxd.launch.spawner import SpawnerClient
from sandboxd.osutil.descriptors import memory_file
from sandboxd.osutil.pidfd import kill
from sandboxd.protocol import building, records, spawning
from sandboxd.protocol.building import Answer, Failed, Order, Removed, RemoveTree
from sandboxd.protocol.codec import Malformed

_ANSWER_SECONDS = 45.0
_ATTEMPTS = 3
_Wanted = TypeVar("_Wanted")
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

    async def ask(self, order: Order, wanted: type[_Wanted]) -> _Wanted | Failed:
        """Return the answer to an order.

        Raises InternalError, OperationTimedOut and SpawnerUnreachable.
        """
        async with self._slots:
            for _ in range(_ATTEMPTS - 1):
                with suppress(SpawnerUnreachable):
                    return _checked(await self._ask_once(order, _ANSWER_SECONDS), wanted)
            return _checked(await self._ask_once(order, _ANSWER_SECONDS), wanted)

    async def remove_tree(self, path: str, turn: Turn) -> None:
        """Remove a tree, however many turns the removal takes; cancellation stops the removal.

        Raises as `ask`, and InternalError where a part of the tree stays.
        """
        order = RemoveTree(path, most=_ENTRIES_OF_A_TURN)
        has_ended = False
        while not has_ended:
            async with self._removers.one(turn):
                answer = _checked(await self._ask_once(order, None), Removed)
            if isinstance(answer, Failed):
                raise InternalError(f"cannot remove {path}: {answer.text}")
            has_ended = answer.has_ended

    async def _ask_once(self, order: Order, seconds: float | None) -> Answer:
        """Raises SpawnerUnreachable when no builder has done the order or will do it."""
        with ExitStack() as close:
            order_fd = memory_file("order", building.ORDERS.encode(order))
            close.callback(os.close, order_fd)
            read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            close.callback(os.close, read_fd)
            try:
                answer, fds = await self._spawner.ask(
                    spawning.ForkBuilder(), [order_fd, write_fd], spawning.Done
                )
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
            if isinstance(answer, spawning.Refused):
                raise InternalError(f"cannot start a builder: {answer.text}")
            if not fds:
                # The kernel drops what we have no descriptors for (unix(7), MSG_CTRUNC).
                raise host_lacks("cannot start a builder", OSError(errno.EMFILE, ""))
            close.callback(os.close, fds[0])
            done = await _answer(read_fd, fds[0], seconds)
            if done is None:
                raise InternalError("cannot make or take away what a sandbox has: the builder died")
            return done


def _checked(answer: Answer, wanted: type[_Wanted]) -> _Wanted | Failed:
    if not isinstance(answer, wanted | Failed):
        raise InternalError(f"cannot use a builder's answer: {answer}")
    return answer


async def _answer(read_fd: int, pidfd: int | None, seconds: float | None) -> Answer | None:
    """Return the builder's answer; None where the builder ended without an answer.

    seconds: how long to wait before the builder is killed; None = for ever. Raises
    OperationTimedOut, and InternalError for an answer that is none.
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
    try:
        return building.ANSWERS.decode(data) if data else None
    except Malformed as exc:
        raise InternalError(f"cannot use a builder's answer: {exc}") from exc
