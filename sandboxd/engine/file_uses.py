# SPDX-License-Identifier: Apache-2.0
"""Uses of a sandbox's files by the API: counted, and ended by a release."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sandboxd.core.model import Caller
from sandboxd.engine.context import Context
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.engine.registry import LiveSandbox
from sandboxd.errors import DiskQuotaExceeded, HostDiskFull, QuotaExceeded, SandboxReleased

# Root is bounded by the sum alone, so that no other caller can keep it out.
_MAX_OF_SANDBOX = 64
_MAX_OF_CALLER = 256
_MAX_IN_ALL = 1024


class FileUses:
    """What is under way, by caller."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._callers: Counter[int] = Counter()

    @asynccontextmanager
    async def one(
        self, caller: Caller, live: LiveSandbox, take: Callable[[int], Awaitable[None]]
    ) -> AsyncIterator[SandboxFiles]:
        """The files of a sandbox, until the context ends or the sandbox is released.

        take: asked before so many bytes are written. Raises QuotaExceeded.
        """
        uid = caller.uid
        _check(f"sandbox {live.sandbox.id}", len(live.uses), _MAX_OF_SANDBOX)
        if uid != 0:
            _check(f"uid {uid}", self._callers[uid], _MAX_OF_CALLER)
        _check("this daemon", self._callers.total(), _MAX_IN_ALL)
        self._callers[uid] += 1
        try:
            async with _use(self._context, uid, live, take) as files:
                yield files
        finally:
            self._callers[uid] -= 1
            if not self._callers[uid]:
                del self._callers[uid]


def _check(whose: str, under_way: int, maximum: int) -> None:
    if under_way >= maximum:
        raise QuotaExceeded(
            f"cannot use the sandbox's files: {maximum} requests of {whose} do so already",
            hint="wait for one to end",
            details={"maximum": maximum},
        )


@asynccontextmanager
async def _use(
    context: Context, uid: int, live: LiveSandbox, take: Callable[[int], Awaitable[None]]
) -> AsyncIterator[SandboxFiles]:
    scope = asyncio.timeout(None)
    live.uses.add(scope)
    live.touch(context.clock)
    try:
        async with scope:
            private_tmp = context.settings.private_mounts or live.sandbox.has_own_root
            yield context.workspaces.files(
                live.sandbox, take, caller_uid=uid, private_tmp=private_tmp
            )
    except HostDiskFull as exc:
        if not context.workspaces.has_own_disk(live.sandbox.id):
            raise
        raise DiskQuotaExceeded(
            f"cannot write to sandbox {live.sandbox.id}: its disk limit is reached",
            hint="delete something, or raise disk_bytes",
            details={"limit_bytes": live.sandbox.limits.disk_bytes},
        ) from exc
    except TimeoutError as exc:
        if scope.expired():
            raise SandboxReleased(
                f"cannot go on with the files of sandbox {live.sandbox.id}: it is being released"
            ) from exc
        raise
    finally:
        live.uses.discard(scope)
        live.touch(context.clock)
        async with live.settled:
            live.settled.notify_all()


async def end_file_uses(live: LiveSandbox) -> None:
    """End all uses, and wait until none touches the sandbox's files any more."""
    now = asyncio.get_running_loop().time()
    for scope in live.uses:
        if not scope.expired():
            scope.reschedule(now)
    async with live.settled:
        await live.settled.wait_for(lambda: not live.uses)
