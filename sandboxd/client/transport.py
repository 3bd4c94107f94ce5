# SPDX-License-Identifier: Apache-2.0
"""Requests over a Unix socket, one connection for each: the blocking half."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

from sandboxd.client.http import AnswerParser, Ended, ProtocolError
from sandboxd.client.refusals import (
    ConnectionLost,
    DaemonUnreachable,
    closed,
    refusal,
    silent,
    unreadable,
)
from sandboxd.client.request import KEY_HEADER, Attempts, Request
from sandboxd.errors import InvalidRequest, QuotaExceeded, SandboxdError

BUSY_SECONDS = 10.0
BUSY_PAUSE_SECONDS = 0.02
CHUNK_BYTES = 256 << 10
# An error's body is small; the rest of a strange one is not waited for.
MAX_REFUSAL_BYTES = 1 << 20


def connect(path: str, timeout_seconds: float | None) -> socket.socket:
    """A connection to the daemon; a full backlog (EAGAIN, unix(7)) is waited for.

    Raises DaemonUnreachable.
    """
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_seconds)
        try:
            connection.connect(path)
        except OSError as exc:
            connection.close()
            if exc.errno != errno.EAGAIN or time.monotonic() > give_up:
                raise DaemonUnreachable(path, exc.errno or errno.ENAMETOOLONG) from exc
            # The kernel tells nobody when there is room in a backlog.
            time.sleep(BUSY_PAUSE_SECONDS)
        else:
            return connection


class Exchange:
    """One request and its answer. A context manager; leaving it closes the connection."""

    def __init__(self, path: str, request: Request) -> None:
        """Send the request and read the answer's head.

        Raises what the daemon refused with (sandboxd.errors), DaemonUnreachable, ConnectionLost.
        """
        self._timeout_seconds = request.timeout_seconds
        self._parser = AnswerParser(has_no_body=request.method == "HEAD")
        self.connection = connect(path, request.timeout_seconds)
        try:
            self._send(request)
            while not self._parser.has_head:
                self.receive()
            if not 200 <= self.status < 300:
                raise refusal(self.status, self._refused_body(), self.headers.get("retry-after"))
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def fileno(self) -> int:
        """For poll(2)."""
        return self.connection.fileno()

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._parser.status

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers, their names in lower case."""
        return self._parser.headers

    @property
    def is_complete(self) -> bool:
        """Whether all of the body came."""
        return self._parser.is_complete

    def take(self) -> bytes:
        """What came of the body and was not taken yet."""
        return self._parser.take()

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes. Raises ConnectionLost."""
        while True:
            chunk = self._parser.take()
            if chunk:
                yield chunk
            elif self._parser.is_complete:
                return
            else:
                self.receive()

    def _send(self, request: Request) -> None:
        try:
            for part in request.parts():
                self.connection.sendall(part)
        except TimeoutError as exc:
            raise silent(self._timeout_seconds) from exc
        except OSError:
            # It may have answered before it had read all, and then the answer says why.
            return

    def receive(self) -> None:
        """Wait for more of the body. Raises ConnectionLost."""
        try:
            self._parser.feed(self.connection.recv(CHUNK_BYTES))
        except TimeoutError as exc:
            raise silent(self._timeout_seconds) from exc
        except (OSError, Ended) as exc:
            raise closed() from exc
        except ProtocolError as exc:
            raise unreadable(exc) from exc

    def _refused_body(self) -> bytes:
        body = bytearray()
        for chunk in self.chunks():
            body += chunk
            if len(body) > MAX_REFUSAL_BYTES:
                break
        return bytes(body)


class Transport:
    """Requests to the daemon on one socket."""

    def __init__(self, path: str) -> None:
        self.path = path

    def reach(self) -> None:
        """Raises DaemonUnreachable where nobody listens; asks nothing."""
        connect(self.path, None).close()

    def open(self, request: Request) -> Exchange:
        """Send it. Raises what the daemon refused with, DaemonUnreachable, ConnectionLost.

        What is idempotent is sent again when the connection broke before there was an answer.
        """
        attempts = Attempts(request)
        while True:
            try:
                return Exchange(self.path, request)
            except (ConnectionLost, DaemonUnreachable) as exc:
                pause = attempts.pause_seconds(exc)
                if request.has_key and not self._knows_keys():
                    raise
            except (QuotaExceeded, InvalidRequest) as exc:
                request.relax(exc)
                continue
            # A daemon that is not there yet tells nobody when it is.
            time.sleep(pause)

    def ask(self, request: Request) -> Any:
        """The answer's JSON; None where it has no body. Raises as `open` does."""
        with self.open(request) as exchange:
            return decode(b"".join(exchange.chunks()))

    def _knows_keys(self) -> bool:
        """Whether the daemon keeps the first answer to an Idempotency-Key."""
        try:
            with self.open(Request("GET", "/openapi.json")) as exchange:
                return KEY_HEADER.encode() in b"".join(exchange.chunks())
        except SandboxdError:
            return False


def decode(body: bytes) -> Any:
    """An answer's JSON; None where it has no body. Raises ConnectionLost."""
    try:
        return json.loads(body) if body else None
    except ValueError as exc:
        raise unreadable("not JSON") from exc
