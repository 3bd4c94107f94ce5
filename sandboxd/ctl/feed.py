# SPDX-License-Identifier: Apache-2.0
"""The input of an execution from standard input, on arrival, in threads.

A program that does not read blocks the sender, which must not block the program's output, nor the
keys that leave a terminal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Empty, Queue

from sandboxd.client import feeding
from sandboxd.client.blocking import finish
from sandboxd.client.calls import Client, JsonObject
from sandboxd.client.refusals import ConnectionLost
from sandboxd.ctl.exits import say
from sandboxd.errors import Conflict, SandboxdError

# Returns the next piece, b"" at the end of input, or None to leave the program's input open.
Read = Callable[[], bytes | None]
# Pieces read and not yet sent, for example while the daemon is away.
_MOST_WAITING = 32
# A pause in the input that ends a request: in a pause no connection can break.
_QUIET_SECONDS = 0.05


class Feed:
    """Two threads: one takes pieces from `read`, the other sends them to an execution.

    Daemon threads, since no event ends a blocking read of a terminal. Errors are printed on stderr,
    but not the program's own end. is_lossy: a daemon that is killed may lose a piece, as is fine
    for typed keys; otherwise the execution is then killed, rather than run on with a gap in the
    input.
    """

    def __init__(
        self, client: Client, execution: JsonObject, read: Read, *, is_lossy: bool
    ) -> None:
        self._flows = client.flow
        self._place: tuple[str, str] = (execution["sandbox_id"], execution["id"])
        self._read = read
        self._is_lossy = is_lossy
        self._waiting: Queue[bytes | OSError | None] = Queue(_MOST_WAITING)
        # What came instead of a piece, once input is over.
        self._last: bytes | OSError | None = None
        self._is_over = False

    def start(self) -> None:
        """Send in the background, to the end of input or of the execution."""
        for name, work in (("stdin", self._take_all), ("input", self._send_all)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def _take_all(self) -> None:
        piece: bytes | OSError | None = b" "
        while isinstance(piece, bytes) and piece:
            try:
                piece = self._read()
            except OSError as exc:
                piece = exc
            self._waiting.put(piece)

    def _send_all(self) -> None:
        try:
            while first := self._next(None):
                self._send(first)
            if isinstance(self._last, OSError):
                raise self._last
            if self._last is not None:
                finish(feeding.close(self._flows, *self._place))
        except Conflict:
            # The program ended or closed stdin, which is no error.
            return
        except (SandboxdError, OSError) as exc:
            say(f"cannot pass standard input on: {exc}: the program is killed")
            finish(feeding.kill(self._flows, *self._place))

    def _send(self, first: bytes) -> None:
        try:
            finish(feeding.send(self._flows, *self._place, self._pieces(first)))
        except ConnectionLost:
            if not self._is_lossy:
                raise

    def _pieces(self, first: bytes) -> Iterator[bytes]:
        """Iterate over the pieces of one request, to a pause in the input."""
        yield first
        size = len(first)
        while size < feeding.REQUEST_BYTES and (piece := self._next(_QUIET_SECONDS)):
            yield piece
            size += len(piece)

    def _next(self, seconds: float | None) -> bytes:
        """Return the next piece; b"" at the end of input, or after `seconds` without a piece."""
        if self._is_over:
            return b""
        try:
            piece = self._waiting.get(timeout=seconds)
        except Empty:
            return b""
        if isinstance(piece, bytes) and piece:
            return piece
        self._last, self._is_over = piece, True
        return b""
