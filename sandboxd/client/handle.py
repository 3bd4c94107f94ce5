# SPDX-License-Identifier: Apache-2.0
"""Handles of started executions: AsyncHandle for asyncio, Handle for the blocking client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Any

from sandboxd.client import bodies, feeding, routes, tail, timed
from sandboxd.client.blocking import blocking, iterate
from sandboxd.client.calls import ABANDON_SECONDS, RUNNING, Flows, JsonObject, ended
from sandboxd.client.results import Decoder, Output, Result, TimedOutput
from sandboxd.client.transport import Background
from sandboxd.errors import Conflict, ExecutionFinished, SandboxdError


class AsyncHandle:
    """A started execution: iterate over the output, `wait` for the end, or `kill` the execution."""

    def __init__(self, client: Flows, answer: JsonObject) -> None:
        self._client = client
        self.id: str = answer["id"]
        self.sandbox_id: str = answer["sandbox_id"]
        self._ended = ended(answer)
        self._feeding: Background | None = None

    def feed(self, data: bytes) -> None:
        """Write `data` as the whole input in the background; `wait` raises a write error."""
        self._feeding = self._client.waits.start(self._pass_on(data))

    async def _pass_on(self, data: bytes) -> None:
        place = (self._client, self.sandbox_id, self.id)
        size = feeding.REQUEST_BYTES
        try:
            for at in range(0, len(data), size):
                await feeding.send(*place, bodies.pieces(data[at : at + size]))
            await feeding.close(*place)
        except Conflict:
            # The program has ended or closed stdin, which is no error.
            return
        except (SandboxdError, OSError):
            # An execution with part of the input missing must not go on.
            await feeding.kill(*place)
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} in sandbox {self.sandbox_id}>"

    async def __aiter__(self) -> AsyncGenerator[Output, None]:
        """Iterate over the output on arrival, from the first byte to the execution's end.

        A broken connection is resumed at the same byte. Each iteration starts at the first byte.
        """
        decoder = Decoder()
        async with aclosing(tail.flow(self._client, self.sandbox_id, self.id)) as pieces:
            async for stream, data in pieces:
                yield decoder.output(stream, data)

    def output(self, since: datetime | None = None) -> AsyncGenerator[TimedOutput, None]:
        """Iterate over the output with the time of each piece, on arrival, to the execution's end.

        since: skip output from before that time. A broken connection is resumed at the same byte.
        Raises OutputTimesUnknown if the times were not kept.
        """
        return timed.flow(self._client, self.sandbox_id, self.id, since=since)

    async def status(self) -> str:
        """Return RUNNING, or the status of the ended execution."""
        status: str = (await self.info())["status"]
        return status

    async def info(self) -> dict[str, Any]:
        """Return the execution as the API answers (docs/api.md)."""
        answer: JsonObject = await self._client.ask(routes.get_execution(self.sandbox_id, self.id))
        return answer

    async def wait(self, timeout: float | None = None) -> Result:
        """Return the result. Raises TimeoutError after `timeout` seconds (None = never)."""
        if self._ended is not None:
            answer = self._ended
        elif timeout is None:
            answer = await self._client.finish_execution(self.sandbox_id, self.id)
        else:
            answer = await self._client.wait_execution(
                self.sandbox_id, self.id, timeout_seconds=max(timeout, 0.0)
            )
            if answer["status"] in RUNNING:
                raise TimeoutError(f"execution {self.id} still runs after {timeout:g} seconds")
        if self._feeding is not None:
            await self._feeding
        stdout = await self._client.all_output(answer, "stdout")
        stderr = await self._client.all_output(answer, "stderr")
        return Result.of(answer, stdout, stderr)

    async def kill(
        self, signal: int | str | None = None, *, grace: bodies.Quantity | None = None
    ) -> None:
        """Send `signal`, or end the execution with all processes.

        grace: time between SIGTERM and SIGKILL. An ended execution is no error.
        """
        body = bodies.kill(signal, grace)
        with suppress(ExecutionFinished):
            await self._client.ask(routes.kill_execution(self.sandbox_id, self.id, body))

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the execution's terminal."""
        await self._client.ask(routes.resize(self.sandbox_id, self.id, rows, cols))

    async def write_stdin(self, data: str | bytes) -> None:
        """Send input to an execution started with stdin=True or tty."""
        raw = data.encode() if isinstance(data, str) else data
        await self._client.ask(routes.write_stdin(self.sandbox_id, self.id, raw))

    async def close_stdin(self) -> None:
        """Close the execution's input; an ended execution is no error."""
        with suppress(ExecutionFinished):
            await self._client.ask(routes.close_stdin(self.sandbox_id, self.id))

    async def abandon(self) -> None:
        """Kill the execution and ignore refusals, for a caller that leaves with an exception."""
        if self._feeding is not None:
            self._feeding.cancel()
        with suppress(SandboxdError, OSError):
            async with self._client.waits.limited(ABANDON_SECONDS):
                await self.kill()


class Handle:
    """A started execution: iterate over the output, `wait` for the end, or `kill` the execution."""

    def __init__(self, flow: AsyncHandle) -> None:
        self._flow = flow
        self.id = flow.id
        self.sandbox_id = flow.sandbox_id

    def feed(self, data: bytes) -> None:
        """Write `data` as the whole input in the background; `wait` raises a write error."""
        self._flow.feed(data)

    __repr__ = AsyncHandle.__repr__

    def __iter__(self) -> Iterator[Output]:
        """Iterate over the output on arrival, from the first byte to the execution's end.

        A broken connection is resumed at the same byte. Each iteration starts at the first byte.
        """
        return iterate(self._flow.__aiter__())

    def output(self, since: datetime | None = None) -> Iterator[TimedOutput]:
        """Iterate over the output with the time of each piece, on arrival, to the execution's end.

        since: skip output from before that time. A broken connection is resumed at the same byte.
        Raises OutputTimesUnknown if the times were not kept.
        """
        return iterate(self._flow.output(since))

    status = blocking(AsyncHandle.status)
    info = blocking(AsyncHandle.info)
    wait = blocking(AsyncHandle.wait)
    kill = blocking(AsyncHandle.kill)
    resize = blocking(AsyncHandle.resize)
    write_stdin = blocking(AsyncHandle.write_stdin)
    close_stdin = blocking(AsyncHandle.close_stdin)
    abandon = blocking(AsyncHandle.abandon)
