# SPDX-License-Identifier: Apache-2.0
"""HTTP requests, and the rules for sending a request again after a broken connection."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sandboxd.client.http import encode_query, request_head
from sandboxd.client.refusals import (
    RETRY_AFTER,
    ConnectionLost,
    DaemonUnreachable,
    Silent,
    Unreadable,
)
from sandboxd.errors import CapacityExceeded, Draining, QuotaExceeded, SandboxdError

# Creating and releasing wait for systemd, which waits for the kernel.
TIMEOUT_SECONDS = 150.0
KEY_HEADER = "Idempotency-Key"
# Together long enough for a restart of the daemon.
_PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
# The pause after a refusal without a time, and the shortest pause that a server may ask for.
_BUSY_PAUSE_SECONDS = 1.0
_LEAST_PAUSE_SECONDS = 0.05
# Refusals for lack of room: the end of a sandbox or execution may make room.
NO_ROOM = (CapacityExceeded, QuotaExceeded)
# Errors during a restart of the daemon.
AWAY = (Draining, ConnectionLost, DaemonUnreachable)
# The longest restart of the daemon that a flow waits out, and the pause before each attempt.
RESTART_SECONDS = 60.0
_RESTART_PAUSE_SECONDS = 0.2
_RESTARTING = (errno.ENOENT, errno.ECONNREFUSED)


class Request:
    """Method, path (percent-encoded), query, and a JSON `body`, bytes `data` or a stream `source`.

    source: the body in pieces, `size_bytes` long (None = unknown). timeout_seconds: how long the
    daemon may be silent (None = for ever). has_key: a daemon that knows Idempotency-Key does a
    repeated request once. was_sent: whether the daemon may have received a part.
    """

    __slots__ = (
        "_body", "data", "has_key", "headers", "method", "path", "query", "source",
        "timeout_seconds", "was_sent",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        data: bytes | None = None,
        source: Iterable[bytes] | None = None,
        size_bytes: int | None = None,
        content_type: str = "application/octet-stream",
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
        has_key: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query or {}
        self.source = source
        self.timeout_seconds = timeout_seconds
        self.has_key = has_key
        self.was_sent = False
        self._body = body
        self.data = json.dumps(body).encode() if body is not None else data
        self.headers = {"Connection": "close", "Accept": "application/json"}
        if has_key:
            self.headers[KEY_HEADER] = os.urandom(16).hex()
        if self.data is not None or source is not None:
            self.headers["Content-Type"] = "application/json" if body is not None else content_type
        if self.data is not None or (method == "POST" and source is None):
            size_bytes = len(self.data or b"")
        if size_bytes is not None:
            self.headers["Content-Length"] = str(size_bytes)
        elif source is not None:
            self.headers["Transfer-Encoding"] = "chunked"
        self.headers |= headers or {}

    def parts(self) -> Iterator[bytes]:
        """Iterate over the bytes to send; the head and a whole body are a single write."""
        self.was_sent = True
        head = request_head(self.method, self.path + encode_query(self.query), self.headers)
        yield head + (self.data or b"")
        if self.source is None:
            return
        if "Content-Length" in self.headers:
            yield from self.source
            return
        for part in self.source:
            if part:
                yield b"%x\r\n%b\r\n" % (len(part), part)
        yield b"0\r\n\r\n"

    def relax(self, error: SandboxdError) -> None:
        """Change the request to a form that this daemon takes. Raises `error` if no change helps.

        The key is dropped if the caller has too many. For an older daemon, which takes no wait in
        seconds, `wait` becomes false. The refused request had no effect, so no work is done twice.
        """
        fields = error.details.get("fields", ())
        if self.has_key and error.details.get("quota") == "idempotency_keys":
            self.has_key = False
            del self.headers[KEY_HEADER]
        elif self._waits and any(field.get("path") == "wait" for field in fields):
            self._body = {**(self._body or {}), "wait": False}
            self.data = json.dumps(self._body).encode()
            self.headers["Content-Length"] = str(len(self.data))
            if self.has_key:
                # The daemon holds the first key against the first body.
                self.headers[KEY_HEADER] = os.urandom(16).hex()
        else:
            raise error

    @property
    def _waits(self) -> bool:
        return isinstance((self._body or {}).get("wait"), float)

    @property
    def is_idempotent(self) -> bool:
        """Whether repeating the request without a key has the effect of a single request."""
        return self.method in ("GET", "HEAD", "PUT", "DELETE") and self.source is None


class Attempts:
    """The attempts to send one request."""

    def __init__(self, request: Request) -> None:
        self._pauses = iter(_PAUSES_SECONDS)
        self._may_repeat = request.is_idempotent or request.has_key
        self._was_lost = False

    def pause_seconds(self, error: SandboxdError) -> float:
        """Return the seconds before the next attempt. Raises `error` when no attempt is left."""
        is_lost = isinstance(error, ConnectionLost) and not isinstance(error, Silent | Unreadable)
        is_restarting = (
            self._was_lost and isinstance(error, DaemonUnreachable) and error.number in _RESTARTING
        )
        pause = next(self._pauses, None)
        if pause is None or not self._may_repeat or not (is_lost or is_restarting):
            raise error
        self._was_lost = True
        return pause


class Absence:
    """The time that the daemon is away, which a flow waits out for RESTART_SECONDS.

    A daemon that refuses because it stops is there until then, however long ago the last one ended.
    was_seen: whether the daemon is known to exist; if not, the first error is the last.
    """

    def __init__(self, *, was_seen: bool = True) -> None:
        self._give_up = None if was_seen else 0.0

    def end(self) -> None:
        """Note that the daemon answers."""
        self._give_up = None

    def pause_seconds(self, error: SandboxdError) -> float:
        """Return the seconds before the next attempt. Raises `error` when the time is over."""
        now = time.monotonic()
        if self._give_up is None or isinstance(error, Draining):
            self._give_up = now + RESTART_SECONDS
        if now > self._give_up:
            raise error
        # No event says when the daemon is back.
        return _RESTART_PAUSE_SECONDS


class Patience:
    """The time that a caller repeats a request refused for lack of room."""

    def __init__(self, seconds: float) -> None:
        self._give_up = time.monotonic() + seconds

    def pause_seconds(self, error: SandboxdError) -> float:
        """Return the seconds before the next attempt.

        Raises `error` when the time is over, or when time makes no room.
        """
        left = self._give_up - time.monotonic()
        if left <= 0 or not error.retryable:
            raise error
        wanted = float(error.details.get(RETRY_AFTER, _BUSY_PAUSE_SECONDS))
        return min(max(wanted, _LEAST_PAUSE_SECONDS), left)
