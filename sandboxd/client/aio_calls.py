# SPDX-License-Identifier: Apache-2.0
"""What the asyncio client does beyond single requests: pages, waiting, whole outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sandboxd.client import routes
from sandboxd.client.aio_transport import AsyncTransport
from sandboxd.client.calls import (
    RELEASE_PAUSES_SECONDS,
    RESTART_SECONDS,
    RETRY_SECONDS,
    RUNNING,
    Answer,
    inline_output,
)
from sandboxd.client.refusals import away
from sandboxd.client.request import AWAY, NO_ROOM, Absence, Patience, Request
from sandboxd.errors import NotFound, SandboxdError

# How long a task that was cancelled may still take to kill its command.
ABANDON_SECONDS = 5.0


class AsyncClient:
    """One daemon. Every method raises what the daemon refused with, as sandboxd.errors."""

    def __init__(self, path: str) -> None:
        self.transport = AsyncTransport(path)

    async def ask(self, request: Request) -> Any:
        """The answer's JSON; None where it has no body."""
        return await self.transport.ask(request)

    async def pages(self, key: str, page: Callable[[str | None], Request]) -> list[Answer]:
        """All entries of a list."""
        found: list[Answer] = []
        cursor: str | None = None
        while True:
            answer = await self.ask(page(cursor))
            found += answer[key]
            cursor = answer["next_cursor"]
            if cursor is None:
                return found

    async def ask_patiently(self, request: Request, capacity_seconds: float | None) -> Answer:
        """The answer; what is refused for want of room is asked again for so long."""
        patience = Patience(capacity_seconds or 0.0)
        while True:
            try:
                answer: Answer = await self.ask(request)
            except NO_ROOM as exc:
                # No daemon tells when there is room.
                await asyncio.sleep(patience.pause_seconds(exc))
            else:
                return answer

    async def start_execution(
        self, ref: str, body: routes.Body, *, wait_seconds: float = 0.0,
        capacity_seconds: float | None = None,
    ) -> Answer:  # fmt: skip
        """The execution, when it ended or after `wait_seconds`; then `finish_execution`.

        When this is left by another exception than a refusal, such as CancelledError, the execution
        is killed.
        """
        request = routes.start_execution(ref, body, wait_seconds)
        try:
            return await self.ask_patiently(request, capacity_seconds)
        except SandboxdError:
            raise
        except BaseException:
            if request.was_sent and request.has_key:
                with suppress(SandboxdError, OSError):
                    async with asyncio.timeout(ABANDON_SECONDS):
                        # By its key the answer is the first one's, and has the execution's id.
                        made = await self.ask(request)
                        await self.ask(routes.kill_execution(made["sandbox_id"], made["id"], {}))
            raise

    async def run_once(self, body: routes.Body, *, capacity_seconds: float | None = None) -> Answer:
        """The finished execution of a run, with the files that `body` has read after it.

        It goes on when the daemon is restarted, and so does the wait. When this is left by another
        exception than a refusal, the sandbox, which `body` has to name, is released.
        """
        request = routes.run(body, None)
        absence = Absence(request, RESTART_SECONDS)
        try:
            while True:
                try:
                    return await self.ask_patiently(request, capacity_seconds)
                except AWAY as exc:
                    absence.check(exc)
                # A daemon that is not there yet tells nobody when it is.
                await asyncio.sleep(RETRY_SECONDS)
        except SandboxdError:
            raise
        except BaseException:
            if request.was_sent:
                with suppress(SandboxdError, OSError):
                    async with asyncio.timeout(ABANDON_SECONDS):
                        await self._release_soon(body["name"])
            raise

    async def _release_soon(self, name: str) -> None:
        """Release a sandbox that may be about to be made."""
        for pause in RELEASE_PAUSES_SECONDS:
            try:
                await self.ask(routes.release_sandbox(name))
            except NotFound:
                # Nobody tells when a name comes to be.
                await asyncio.sleep(pause)
            else:
                return
        await self.ask(routes.release_sandbox(name))

    async def wait_execution(
        self, ref: str, execution_id: str, *, timeout_seconds: float | None = None
    ) -> Answer:
        """The finished execution, or after the timeout (None = never) as it is then."""
        while True:
            wait = routes.FINAL_WAIT_SECONDS if timeout_seconds is None else timeout_seconds
            answer: Answer = await self.ask(routes.wait_execution(ref, execution_id, wait))
            if answer["status"] not in RUNNING or timeout_seconds is not None:
                return answer

    async def finish_execution(self, ref: str, execution_id: str) -> Answer:
        """The finished execution. It goes on when the daemon is restarted, and so does the wait.

        Raises ConnectionLost when the daemon stays away for RESTART_SECONDS.
        """
        give_up: float | None = None
        while True:
            try:
                return await self.wait_execution(ref, execution_id)
            except AWAY as exc:
                now = asyncio.get_running_loop().time()
                give_up = now + RESTART_SECONDS if give_up is None else give_up
                if now > give_up:
                    raise away(exc, ref, execution_id) from exc
            # A daemon that is not there yet tells nobody when it is.
            await asyncio.sleep(RETRY_SECONDS)

    async def all_output(self, execution: Answer, stream: str) -> bytes:
        """Every byte of an execution's stream: what its answer carries, then the rest."""
        inline = inline_output(execution, stream)
        if not execution[f"{stream}_inline_truncated"]:
            return inline
        sandbox, identity = execution["sandbox_id"], execution["id"]
        request = routes.read_output(sandbox, identity, stream, len(inline))
        return inline + await self.transport.read(request)
