# SPDX-License-Identifier: Apache-2.0
"""File operations of the API in a sandbox: counted per caller, ended by a release."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sandboxd.core.fair import FairSum, Holdings
from sandboxd.core.model import Caller
from sandboxd.engine.context import Context
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.engine.registry import LiveSandbox
from sandboxd.errors import DiskQuotaExceeded, HostDiskFull, SandboxReleased

_OF_ALL = FairSum(total=2048, little=8, most=256)
# Per caller and sandbox.
_MOST_OF_SANDBOX = 64


class FileUses:
    """The file operations in progress, by caller."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._held = Holdings(
            _OF_ALL,
            "uses of files",
            verb="use the sandbox's files",
            hint="wait for a request to end",
            most_of_part=_MOST_OF_SANDBOX,
        )

    @asynccontextmanager
    async def one(
        self, caller: Caller, live: LiveSandbox, take: Callable[[int], Awaitable[None]]
    ) -> AsyncIterator[SandboxFiles]:
        """Give access to a sandbox's files until the context ends or the sandbox is released.

        take: called with the number of bytes before each write. Raises QuotaExceeded.
        """
        context, scope = self._context, asyncio.timeout(None)
        with self._held.one(caller.uid, live.sandbox.id):
            live.uses.add(scope)
            live.touch(context.clock)
            try:
                async with scope:
                    private_tmp = context.settings.private_mounts or live.sandbox.has_own_root
                    yield context.workspaces.files(
                        live.sandbox, take, caller_uid=caller.uid, private_tmp=private_tmp
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
                        f"cannot go on with the files of sandbox {live.sandbox.id}: it is being "
                        "released"
                    ) from exc
                raise
            finally:
                live.uses.discard(scope)
                live.touch(context.clock)
                async with live.settled:
                    live.settled.notify_all()


async def end_file_uses(live: LiveSandbox) -> None:
    """End all file operations of a sandbox; return once all have left."""
    now = asyncio.get_running_loop().time()
    for scope in live.uses:
        if not scope.expired():
            scope.reschedule(now)
    async with live.settled:
        await live.settled.wait_for(lambda: not live.uses)
