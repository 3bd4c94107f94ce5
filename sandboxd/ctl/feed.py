# SPDX-License-Identifier: Apache-2.0
"""Standard input of sandboxctl to that of an execution, as it comes.

In a thread of its own: a program that does not read holds the sender up, which must not hold up its
output.
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

# The next piece; b"" = the end of input, None = no more, but leave the program's open.
Read = Callable[[], bytes | None]


class Feed(threading.Thread):
    """Passes on what `read` gives. A daemon thread, since nothing ends a wait for a terminal.

    What keeps it from passing all on, but for the program's own end, is said on stderr.

    is_lossy: over a restart of the daemon a piece may be lost, as is fine for what is typed; else
    the execution is killed then, rather than fed with a hole in its input.
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
        """To the end of input, or of the execution."""
        try:
            while not self._is_over:
                self._send()
        except Conflict:
            # The program has ended or closed its input, as it may.
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
