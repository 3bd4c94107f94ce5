# SPDX-License-Identifier: Apache-2.0
"""A request, and whether to send the request again when the connection broke."""

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

# Creating and releasing wait for systemd, and that for the kernel.
TIMEOUT_SECONDS = 150.0
KEY_HEADER = "Idempotency-Key"
# Long enough for a daemon that is being restarted.
_PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
# Where a refusal does not say after how long; and what a server may not make it less than.
_BUSY_PAUSE_SECONDS = 1.0
_LEAST_PAUSE_SECONDS = 0.05
# Refusals for want of room, which may be made by the end of a sandbox or execution.
NO_ROOM = (CapacityExceeded, QuotaExceeded)
# What a restart of the daemon answers with, or does not.
AWAY = (Draining, ConnectionLost, DaemonUnreachable)
_RESTARTING = (errno.ENOENT, errno.ECONNREFUSED)


class Request:
    """Method, path (percent-encoded), query, and a JSON `body`, `data` or a `source`.

    source: the body's bytes, as many as `size_bytes` says (None = unknown). timeout_seconds: how
    long the daemon may be silent (None = for ever). has_key: sent twice, the request is done once,
    where the daemon keeps keys. was_sent: whether a daemon may have received a part.
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
        """The bytes to send; head and a body that is there already are a single write."""
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
        """Ask in a form that this daemon takes; raises any other `error`.

        Without a key where the caller has too many, and by an older daemon without a wait at the
        start, which only newer ones bound. Nothing was done yet, so there is nothing to do twice.
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
                # The first key belongs to the first body.
                self.headers[KEY_HEADER] = os.urandom(16).hex()
        else:
            raise error

    @property
    def _waits(self) -> bool:
        return isinstance((self._body or {}).get("wait"), float)

    @property
    def is_idempotent(self) -> bool:
        """Whether sending the request twice does the same as once, without a key."""
        return self.method in ("GET", "HEAD", "PUT", "DELETE") and self.source is None


class Attempts:
    """How often a request is sent."""

    def __init__(self, request: Request) -> None:
        self._pauses = iter(_PAUSES_SECONDS)
        self._may_repeat = request.is_idempotent or request.has_key
        self._was_lost = False

    def pause_seconds(self, error: SandboxdError) -> float:
        """How long to wait before the next attempt; raises `error` when there is none."""
        is_lost = isinstance(error, ConnectionLost) and not isinstance(error, Silent | Unreadable)
        is_restarting = (
            self._was_lost and isinstance(error, DaemonUnreachable) and error.number in _RESTARTING
        )
        pause = next(self._pauses, None)
        if pause is None or not self._may_repeat or not (is_lost or is_restarting):
            raise error
        self._was_lost = True
        return pause


class Patience:
    """How long a caller waits for what is refused for want of room now."""

    def __init__(self, seconds: float) -> None:
        self._give_up = time.monotonic() + seconds

    def pause_seconds(self, error: SandboxdError) -> float:
        """How long to wait before the next attempt; raises `error` when that would be too late."""
        left = self._give_up - time.monotonic()
        if left <= 0:
            raise error
        wanted = float(error.details.get(RETRY_AFTER, _BUSY_PAUSE_SECONDS))
        return min(max(wanted, _LEAST_PAUSE_SECONDS), left)
