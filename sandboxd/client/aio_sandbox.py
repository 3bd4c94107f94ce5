# SPDX-License-Identifier: Apache-2.0
"""The asyncio client: a sandbox as an object, with the methods of the blocking client."""

from __future__ import annotations

from typing import Self

from sandboxd.client.aio import LoopWaits
from sandboxd.client.calls import Flows, socket_path
from sandboxd.client.handle import AsyncHandle
from sandboxd.client.sandbox import SandboxFlow


class AsyncSandbox(SandboxFlow[AsyncHandle]):
    """A sandbox of the daemon on this host. Made by `create`, `connect` and `list`.

    An async context manager, which releases the sandbox and ends all programs inside. Methods raise
    what the daemon refuses with, as the classes in sandboxd.errors; sizes may be "512M", durations
    "90s", cores 1.5 or "150%".
    """

    @staticmethod
    def _flows(socket: str | None) -> Flows:
        return Flows(socket_path(socket), LoopWaits())

    @staticmethod
    def _shown(handle: AsyncHandle) -> AsyncHandle:
        return handle

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.kill()
