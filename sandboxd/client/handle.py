# SPDX-License-Identifier: Apache-2.0
"""An execution that may still run: for asyncio, and the same blocking."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Any

from sandboxd.client import bodies, routes, tail, timed
from sandboxd.client.blocking import blocking, iterate
from sandboxd.client.calls import ABANDON_SECONDS, RUNNING, Flows, JsonObject, ended
from sandboxd.client.results import Decoder, Output, Result, TimedOutput
from sandboxd.client.transport import Background
from sandboxd.errors import Conflict, ExecutionFinished, SandboxdError


class AsyncHandle:
    """A started execution: iterate over its output, `wait` for its end, `kill` it."""

    def __init__(self, client: Flows, answer: JsonObject) -> None:
        self._client = client
        self.id: str = answer["id"]
        self.sandbox_id: str = answer["sandbox_id"]
        self._ended = ended(answer)
        self._feeding: Background | None = None

    def feed(self, data: bytes) -> None:
        """Write all of its input, then the end, while it runs; `wait` raises what stops that."""
        self._feeding = self._client.waits.start(self._pass_on(data))

    async def _pass_on(self, data: bytes) -> None:
        request = routes.stream_stdin(self.sandbox_id, self.id, bodies.pieces(data))
        try:
            await self._client.ask(request)
            await self._client.ask(routes.close_stdin(self.sandbox_id, self.id))
        except Conflict:
            # The program has ended or closed its input, as it may.
            return
        except (SandboxdError, OSError):
            # Rather than with a hole in its input it ends.
            with suppress(SandboxdError, OSError):
                await self.kill()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} in sandbox {self.sandbox_id}>"

    async def __aiter__(self) -> AsyncGenerator[Output, None]:
        """What it prints, from its first byte on, as it comes; ends when the execution does.

        Goes on where it was when the connection breaks. Each iteration begins anew.
        """
        decoder = Decoder()
        async with aclosing(tail.flow(self._client, self.sandbox_id, self.id)) as pieces:
            async for stream, data in pieces:
                yield decoder.output(stream, data)

    def output(self, since: datetime | None = None) -> AsyncGenerator[TimedOutput, None]:
        """What it prints and when each piece came, as it comes; ends when the execution does.

        since: only what came then or later. Goes on where it was when the connection breaks.
        Raises OutputTimesUnknown where times were not kept.
        """
        return timed.flow(self._client, self.sandbox_id, self.id, since=since)

    async def status(self) -> str:
        """RUNNING, or how it ended."""
        status: str = (await self.info())["status"]
        return status

    async def info(self) -> dict[str, Any]:
        """All about it as the API answers (docs/api.md)."""
        answer: JsonObject = await self._client.ask(routes.get_execution(self.sandbox_id, self.id))
        return answer

    async def wait(self, timeout: float | None = None) -> Result:
        """The result, once it ended. Raises TimeoutError when that takes over `timeout` seconds."""
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
        """End it with all it started, after SIGTERM and `grace`, or only send `signal`.

        One that has ended already is left alone.
        """
        body = bodies.kill(signal, grace)
        with suppress(ExecutionFinished):
            await self._client.ask(routes.kill_execution(self.sandbox_id, self.id, body))

    async def resize(self, rows: int, cols: int) -> None:
        """Give its terminal another size."""
        await self._client.ask(routes.resize(self.sandbox_id, self.id, rows, cols))

    async def write_stdin(self, data: str | bytes) -> None:
        """Send more input to an execution that was started with stdin=True or tty."""
        raw = data.encode() if isinstance(data, str) else data
        await self._client.ask(routes.write_stdin(self.sandbox_id, self.id, raw))

    async def close_stdin(self) -> None:
        """Let it read the end of its input, if it has not ended itself."""
        with suppress(ExecutionFinished):
            await self._client.ask(routes.close_stdin(self.sandbox_id, self.id))

    async def abandon(self) -> None:
        """Kill it as far as that can be done: for a caller that is leaving with an error."""
        if self._feeding is not None:
            self._feeding.cancel()
        with suppress(SandboxdError, OSError):
            async with self._client.waits.limited(ABANDON_SECONDS):
                await self.kill()


class Handle:
    """A started execution: iterate over its output, `wait` for its end, `kill` it."""

    def __init__(self, flow: AsyncHandle) -> None:
        self._flow = flow
        self.id = flow.id
        self.sandbox_id = flow.sandbox_id

    def feed(self, data: bytes) -> None:
        """Write all of its input, then the end, while it runs; `wait` raises what stops that."""
        self._flow.feed(data)

    __repr__ = AsyncHandle.__repr__

    def __iter__(self) -> Iterator[Output]:
        """What it prints, from its first byte on, as it comes; ends when the execution does.

        Goes on where it was when the connection breaks. Each iteration begins anew.
        """
        return iterate(self._flow.__aiter__())

    def output(self, since: datetime | None = None) -> Iterator[TimedOutput]:
        """What it prints and when each piece came, as it comes; ends when the execution does.

        since: only what came then or later. Goes on where it was when the connection breaks.
        Raises OutputTimesUnknown where times were not kept.
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
