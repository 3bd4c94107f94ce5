# SPDX-License-Identifier: Apache-2.0
"""The input of an execution from standard input, on arrival, in a thread.

A program that does not read blocks the sender, which must not block the program's output.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from sandboxd.client import routes
from sandboxd.client.calls import Client, JsonObject
from sandboxd.client.request import AWAY
from sandboxd.ctl.exits import say
from sandboxd.errors import Conflict, SandboxdError

# Returns the next piece, b"" at the end of input, or None to leave the program's input open.
Read = Callable[[], bytes | None]


class Feed(threading.Thread):
    """A thread that sends the pieces of `read` to an execution.

    A daemon thread, since no event ends a blocking read of a terminal. Errors are printed on
    stderr, but not the program's own end. is_lossy: a restart of the daemon may lose a piece, as is
    fine for typed keys; otherwise the execution is then killed, rather than run on with a gap in
    the input.
    """

    def __init__(
        self, client: Client, execution: JsonObject, read: Read, *, is_lossy: bool
    ) -> None:
        super().__init__(name="stdin", daemon=True)
        self._client = client
        self._ref: str = execution["sandbox_id"]
        self._id: str = execution["id"]
        self._read = read
        self._is_lossy = is_lossy
        self._is_over = False
        self._closes = False

    def run(self) -> None:
        """Send to the end of input or of the execution."""
        try:
            while not self._is_over:
                self._send()
        except Conflict:
            # The program ended or closed stdin, which is no error.
            return
        except (SandboxdError, OSError) as exc:
            say(f"cannot pass standard input on: {exc}")
            with suppress(SandboxdError):
                self._client.kill_execution(self._ref, self._id, {})

    def _send(self) -> None:
        try:
            self._client.ask(routes.stream_stdin(self._ref, self._id, self._pieces()))
            if self._closes:
                self._client.ask(routes.close_stdin(self._ref, self._id))
        except AWAY:
            if not self._is_lossy:
                raise

    def _pieces(self) -> Iterator[bytes]:
        while piece := self._read():
            yield piece
        self._is_over = True
        self._closes = piece is not None
