# SPDX-License-Identifier: Apache-2.0
"""HTTP over a Unix socket, one connection for each request."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from sandboxd.client.refusals import ConnectionLost, DaemonUnreachable, refusal

_BUSY_SECONDS = 10.0
_BUSY_PAUSE_SECONDS = 0.02
_CHUNK_BYTES = 256 << 10


class _UnixConnection(http.client.HTTPConnection):
    """http.client's connection, made to a path."""

    def __init__(self, path: str, timeout_seconds: float | None) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        """Connect; a full backlog (EAGAIN, unix(7)) is waited for."""
        give_up = time.monotonic() + _BUSY_SECONDS
        while True:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            try:
                self.sock.connect(self._path)
            except OSError as exc:
                self.sock.close()
                if exc.errno != errno.EAGAIN or time.monotonic() > give_up:
                    raise DaemonUnreachable(self._path, exc.errno or errno.ENAMETOOLONG) from exc
                # The kernel tells nobody when there is room in a backlog.
                time.sleep(_BUSY_PAUSE_SECONDS)
            else:
                return


class Transport:
    """Requests to the daemon on one socket."""

    def __init__(self, path: str) -> None:
        self.path = path

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        timeout_seconds: float | None,
    ) -> Any:
        """The answer's JSON; None where it has no body.

        Raises what the daemon refused with (sandboxd.errors), DaemonUnreachable, ConnectionLost.
        """
        with self._answer(method, path, body, query, timeout_seconds) as response:
            answer = response.read()
        try:
            return json.loads(answer) if answer else None
        except ValueError as exc:
            raise ConnectionLost("cannot understand the answer of sandboxd: not JSON") from exc

    def stream(
        self, path: str, *, query: Mapping[str, object], timeout_seconds: float | None
    ) -> Iterator[bytes]:
        """The answer's bytes as they come. Raises as `ask` does."""
        with self._answer("GET", path, None, query, timeout_seconds) as response:
            while chunk := response.read(_CHUNK_BYTES):
                yield chunk

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, object] | None,
        timeout_seconds: float | None,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = _UnixConnection(self.path, timeout_seconds)
        headers = {"Connection": "close", "Accept": "application/json"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            if not 200 <= response.status < 300:
                raise refusal(response.status, response.read())
            yield response
        except TimeoutError as exc:
            raise ConnectionLost(
                f"cannot get an answer from sandboxd: none within {timeout_seconds:g} seconds"
            ) from exc
        except (OSError, http.client.HTTPException) as exc:
            raise ConnectionLost(
                "cannot get an answer from sandboxd: it closed the connection",
                hint="see its journal; an execution that was running goes on or is listed as ended",
            ) from exc
        finally:
            connection.close()
