# SPDX-License-Identifier: Apache-2.0
"""An execution that may still run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sandboxd.client import bodies, routes
from sandboxd.client.calls import RUNNING, Answer, Client, ended
from sandboxd.client.feed import Feed
from sandboxd.client.results import Decoder, Output, Result
from sandboxd.client.tail import follow
from sandboxd.errors import ExecutionFinished, SandboxdError


class Handle:
    """A started execution: iterate over its output, `wait` for its end, `kill` it."""

    def __init__(self, client: Client, answer: Answer) -> None:
        self._client = client
        self.id: str = answer["id"]
        self.sandbox_id: str = answer["sandbox_id"]
        self._ended = ended(answer)
        self._feed: Feed | None = None

    def feed(self, data: bytes) -> None:
        """Write all of its input, then the end, while it runs; `wait` raises what stops that."""
        pieces = bodies.pieces(data)
        answer = {"id": self.id, "sandbox_id": self.sandbox_id}
        self._feed = Feed(self._client, answer, lambda: next(pieces, b""), is_lossy=False)
        self._feed.start()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} in sandbox {self.sandbox_id}>"

    def __iter__(self) -> Iterator[Output]:
        """What it prints, from its first byte on, as it comes; ends when the execution does.

        Goes on where it was when the connection breaks. Each iteration begins anew.
        """
        decoder = Decoder()
        for stream, data in follow(self._client, self.sandbox_id, self.id):
            yield decoder.output(stream, data)

    def status(self) -> str:
        """RUNNING, or how it ended."""
        status: str = self.info()["status"]
        return status

    def info(self) -> dict[str, Any]:
        """All about it as the API answers (docs/api.md)."""
        return self._client.get_execution(self.sandbox_id, self.id)

    def wait(self, timeout: float | None = None) -> Result:
        """The result, once it ended. Raises TimeoutError when that takes over `timeout` seconds."""
        if self._ended is not None:
            answer = self._ended
        elif timeout is None:
            answer = self._client.finish_execution(self.sandbox_id, self.id)
        else:
            answer = self._client.wait_execution(
                self.sandbox_id, self.id, timeout_seconds=max(timeout, 0.0)
            )
            if answer["status"] in RUNNING:
                raise TimeoutError(f"execution {self.id} still runs after {timeout:g} seconds")
        if self._feed is not None:
            self._feed.join()
            if self._feed.error is not None:
                raise self._feed.error
        return self._result(answer)

    def kill(
        self, signal: int | str | None = None, *, grace: bodies.Quantity | None = None
    ) -> None:
        """End it with all it started, after SIGTERM and `grace`, or only send `signal`.

        One that has ended already is left alone.
        """
        with suppress(ExecutionFinished):
            self._client.kill_execution(self.sandbox_id, self.id, bodies.kill(signal, grace))

    def resize(self, rows: int, cols: int) -> None:
        """Give its terminal another size."""
        self._client.ask(routes.resize(self.sandbox_id, self.id, rows, cols))

    def write_stdin(self, data: str | bytes) -> None:
        """Send more input to an execution that was started with stdin=True or tty."""
        raw = data.encode() if isinstance(data, str) else data
        self._client.ask(routes.write_stdin(self.sandbox_id, self.id, raw))

    def close_stdin(self) -> None:
        """Let it read the end of its input, if it has not ended itself."""
        with suppress(ExecutionFinished):
            self._client.ask(routes.close_stdin(self.sandbox_id, self.id))

    def abandon(self) -> None:
        """Kill it as far as that can be done: for a caller that is leaving with an error."""
        with suppress(SandboxdError, OSError):
            self.kill()

    def _result(self, answer: Answer) -> Result:
        stdout = self._client.all_output(answer, "stdout")
        stderr = self._client.all_output(answer, "stderr")
        return Result.of(answer, stdout, stderr)
