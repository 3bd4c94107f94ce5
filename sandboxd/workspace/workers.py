# SPDX-License-Identifier: Apache-2.0
"""Threads that work on a sandbox's files as the sandbox's own uid.

Root would pass the sandbox's quota (CAP_SYS_RESOURCE) and could be led to foreign files. So each
thread keeps only the rights to become a sandbox's uid and to overlook permission bits: a new file
belongs to the sandbox from the start, and counts. Without root all threads have the daemon's uid.

A thread cannot be interrupted. So each piece of work is short, long work is done in slices, and
threads are given in turn (core/turns.py): a hostile tree holds up its owner alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, local
from typing import ParamSpec, TypeVar, cast

from sandboxd.core.turns import Turn, Turns
from sandboxd.osutil import linux
from sandboxd.osutil.privileges import Privileges

# Disks answer several requests at once. All threads share the interpreter with the event loop: with
# eight threads, four of them at most for one sandbox, requests of the remaining sandboxes take
# thrice as long as with four.
_THREADS = 4
# Seconds of a slice, which ends after the step under way.
_SLICE = 0.05
_CAPABILITIES = (linux.CAP_DAC_OVERRIDE, linux.CAP_SETGID, linux.CAP_SETUID)

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """A bounded pool of threads that act as sandboxes' uids."""

    def __init__(self, name: str, privileges: Privileges, threads: int = _THREADS) -> None:
        # Whether the threads act as sandboxes' uids.
        self.is_root = privileges.is_root
        self._thread = local()
        self._turns = Turns(threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def close(self) -> None:
        """End the threads: drop waiting work, wait for running work."""
        self._pool.shutdown(cancel_futures=True)

    async def run(
        self, turn: Turn, uid: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `work` as `uid` in a thread, in turn; a cancelled call leaves nothing running."""
        call = partial(self._as, uid, partial(work, *args, **kwargs))
        async with self._turns.one(turn):
            future = asyncio.get_running_loop().run_in_executor(self._pool, call)
            return await finished(future)

    async def run_steps(self, turn: Turn, uid: int, steps: Generator[None, None, T]) -> T:
        """Run long work step by step, in turns; a cancellation closes the generator there."""
        try:
            while True:
                has_ended, result = await self.run(turn, uid, _slice, steps)
                if has_ended:
                    return cast(T, result)
        finally:
            await self.run(turn, uid, steps.close)

    def _as(self, uid: int, work: Callable[[], T]) -> T:
        if self.is_root and getattr(self._thread, "uid", None) != uid:
            if not hasattr(self._thread, "uid"):
                linux.keep_capabilities(*_CAPABILITIES)
            self._thread.uid = None
            linux.act_as(uid)
            # Leaving root took the right to overlook permission bits out of force.
            linux.keep_capabilities(*_CAPABILITIES)
            self._thread.uid = uid
        return work()


def _slice(steps: Generator[None, None, T]) -> tuple[bool, T | None]:
    """Run steps for a slice; return whether the work has ended, and the result."""
    end = time.monotonic() + _SLICE
    try:
        next(steps)
        while time.monotonic() < end:
            next(steps)
    except StopIteration as last:
        return True, last.value
    return False, None


async def finished(future: asyncio.Future[T], stop: Event | None = None) -> T:
    """Return the result of a thread; when cancelled set `stop` and wait for the end."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        await asyncio.wait([future])
        if not future.cancelled():
            # Retrieved here, since asyncio logs an exception that no caller retrieves.
            future.exception()
        raise
