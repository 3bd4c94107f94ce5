# SPDX-License-Identifier: Apache-2.0
"""Threads that work on a sandbox's files as the sandbox's own uid.

Root would pass the sandbox's quota (CAP_SYS_RESOURCE) and could be led to others' files. So each
thread keeps nothing but the right to become a sandbox's uid and to overlook permission bits: what
it makes belongs to the sandbox from the start, and counts. Without root all have the same uid.

A thread cannot be taken back from what it does. So each piece of work is short, what is long is
done in slices, and threads are given in turn (turns.py): a hostile tree holds up its owner alone.
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

# Disks answer several requests at once. All threads share the interpreter with the loop: with eight
# of them, of which one sandbox may have four, others' requests take thrice as long as with four.
_THREADS = 4
# Of one slice, in seconds; it ends with the step that is under way.
_SLICE = 0.05
_CAPABILITIES = (linux.CAP_DAC_OVERRIDE, linux.CAP_SETGID, linux.CAP_SETUID)

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """A bounded pool of such threads."""

    def __init__(self, name: str, privileges: Privileges, threads: int = _THREADS) -> None:
        # Whether its threads act as others.
        self.is_root = privileges.is_root
        self._thread = local()
        self._turns = Turns(threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def close(self) -> None:
        """End the threads; what waits is dropped, what runs is waited for."""
        self._pool.shutdown(cancel_futures=True)

    async def run(
        self, turn: Turn, uid: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `work` as `uid` in a thread, once it is its turn. One that is cancelled has ended
        all the same, or has never begun."""
        call = partial(self._as, uid, partial(work, *args, **kwargs))
        async with self._turns.one(turn):
            future = asyncio.get_running_loop().run_in_executor(self._pool, call)
            return await finished(future)

    async def run_steps(self, turn: Turn, uid: int, steps: Generator[None, None, T]) -> T:
        """The same for work that may be long: it gives way wherever it yields, and ends there where
        this is cancelled."""
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
    """Some of the steps; whether these were the last, and what came of them."""
    end = time.monotonic() + _SLICE
    try:
        next(steps)
        while time.monotonic() < end:
            next(steps)
    except StopIteration as last:
        return True, last.value
    return False, None


async def finished(future: asyncio.Future[T], stop: Event | None = None) -> T:
    """The result of work in a thread, which cannot be cancelled: who is, waits for its end.

    stop: set then, for work that looks at it.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        await asyncio.wait([future])
        if not future.cancelled():
            # Nobody else will ask for it.
            future.exception()
        raise
