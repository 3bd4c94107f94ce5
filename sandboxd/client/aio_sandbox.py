# SPDX-License-Identifier: Apache-2.0
"""The asyncio client: `AsyncSandbox`, with the methods of the blocking client."""

from __future__ import annotations

from typing import Self

from sandboxd.client.aio import LoopWaits
from sandboxd.client.calls import Flows, socket_path
from sandboxd.client.handle import AsyncHandle
from sandboxd.client.sandbox import SandboxFlow


class AsyncSandbox(SandboxFlow[AsyncHandle]):
    """A sandbox of the daemon on this host, made by `create`, `connect` or `list`.

    As an async context manager the sandbox is released at the end, with all programs inside.
    Methods raise the daemon's refusals as classes of sandboxd.errors. Sizes may be "512M",
    durations "90s", cores 1.5 or "150%".
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
