# SPDX-License-Identifier: Apache-2.0
"""Removes trees in turns: small trees in threads of the daemon, large trees by a helper."""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Protocol

from sandboxd.core.turns import Turn, Turns
from sandboxd.errors import SandboxdError
from sandboxd.osutil.privileges import Privileges
from sandboxd.workspace.removal import remove_tree
from sandboxd.workspace.workers import finished

_log = logging.getLogger(__name__)
_THREADS = 4
# Entries that a thread removes in a hundredth of a second.
_QUICK_ENTRIES = 500
# Removals of records, and of leftovers of earlier daemons: never much.
_OURS = Turn(-1, "")


class Helpers(Protocol):
    """Processes for work that is too much for the daemon's."""

    async def remove_tree(self, path: str, turn: Turn) -> None:
        """Remove a tree in turns; stop when cancelled. Raises SandboxdError."""


class Removals:
    """Threads for removals alone, apart from the files' workers; `helpers` is set at start."""

    def __init__(self, privileges: Privileges) -> None:
        self.helpers: Helpers | None = None
        self._privileges = privileges
        self._stops: set[Event] = set()
        self._turns = Turns(_THREADS)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="remover")

    def close(self) -> None:
        """Stop running removals, since the process's end would wait for them."""
        for stop in self._stops:
            stop.set()
        self._threads.shutdown(cancel_futures=True)

    async def remove(self, path: str, *, turn: Turn = _OURS) -> None:
        """Remove a tree in turn; stop when cancelled.

        A thread with a system call for each of many entries takes the interpreter as often, and all
        threads wait: a larger tree gets a separate process.
        """
        if self.helpers is None:
            await self._remove_here(path, None, turn)
        elif not await self._remove_here(path, _QUICK_ENTRIES, turn):
            try:
                await self.helpers.remove_tree(path, turn)
            except SandboxdError as exc:
                _log.warning("Removing %s without help: %s", path, exc)
                await self._remove_here(path, None, turn)

    async def discard(self, path: str) -> None:
        """Remove a tree or a file."""
        try:
            await self.remove(path)
        except NotADirectoryError:
            await asyncio.to_thread(os.unlink, path)

    async def _remove_here(self, path: str, most: int | None, turn: Turn) -> bool:
        stop = Event()
        work = partial(remove_tree, path, self._privileges, stop, most=most)
        async with self._turns.one(turn):
            self._stops.add(stop)
            future = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await finished(future, stop)
            finally:
                self._stops.discard(stop)
