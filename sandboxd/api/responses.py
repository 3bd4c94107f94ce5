# SPDX-License-Identifier: Apache-2.0
"""Converts answers and errors to HTTP; only this module knows the status numbers of errors."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from pydantic import BaseModel
from pydantic_core import to_json

from sandboxd import errors
from sandboxd.api.sending import send_pieces
from sandboxd.api.shares import SMALL_BYTES
from sandboxd.core.names import new_id

logger = logging.getLogger(__name__)

# Looked up along the class's bases: a leaf class is listed only if the status differs.
STATUS: Mapping[type[errors.SandboxdError], int] = {
    errors.SandboxdError: 500,
    errors.InvalidRequest: 400,
    errors.RouteNotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.RequestTooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.RangeNotSatisfiable: 416,
    errors.AccessDenied: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.ExecutionNotStarted: 422,
    errors.QuotaExceeded: 429,
    errors.Unavailable: 503,
    errors.SchemeError: 502,
    errors.OperationTimedOut: 504,
    errors.DiskQuotaExceeded: 507,
    errors.DiskUncountable: 507,
}
# The longest time for a client to read an answer.
TAKEN_SECONDS = 75.0
# Retry-After by status: for 429 an execution's end makes room, for 503 perhaps only a release.
_RETRY_AFTER_SECONDS = {429: 1, 503: 5}
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """A handler's answer; pieces: the body, where encoded as JSON already."""

    status: int
    answer: BaseModel | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()


def status_of(error: type[errors.SandboxdError]) -> int:
    """Return the HTTP status of an error's class."""
    return next(STATUS[base] for base in error.__mro__ if base in STATUS)


@dataclass(frozen=True, slots=True)
class Sent:
    """An encoded answer; pieces: of the JSON body, none for no body."""

    status: int
    pieces: tuple[bytes, ...]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Return the length of the body."""
        return sum(map(len, self.pieces))

    @property
    def body(self) -> bytes:
        """Return the whole body."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def response(self) -> web.Response:
        """Return an HTTP response with the whole body."""
        if not self.pieces:
            return web.Response(status=self.status, headers=self.headers)
        return web.Response(
            status=self.status, body=self.body, content_type=_JSON, headers=self.headers
        )

    async def send(self, request: web.BaseRequest, request_id: str) -> web.StreamResponse:
        """Send the answer. Raises ConnectionResetError if not taken within TAKEN_SECONDS."""
        response = web.StreamResponse(
            status=self.status, headers={"X-Request-Id": request_id, **self.headers}
        )
        response.content_type = _JSON
        response.content_length = self.size_bytes
        try:
            async with asyncio.timeout(TAKEN_SECONDS):
                return await send_pieces(request, response, _cut(self.pieces))
        except TimeoutError as exc:
            raise ConnectionResetError("the client did not take its answer") from exc


async def _cut(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield parts of at most SMALL_BYTES, so that the transport buffers little."""
    for piece in pieces:
        for begin in range(0, len(piece), SMALL_BYTES):
            yield piece[begin : begin + SMALL_BYTES]


def send_reply(reply: Reply) -> Sent:
    """Encode a handler's answer."""
    if reply.pieces or reply.answer is None:
        return Sent(reply.status, reply.pieces, reply.headers)
    return Sent(reply.status, (to_json(reply.answer),), reply.headers)


def error_response(error: errors.SandboxdError, request_id: str) -> web.Response:
    """Return the HTTP response for an error."""
    return send_error(error, request_id).response()


def send_error(error: errors.SandboxdError, request_id: str) -> Sent:
    """Encode an error as an answer, with Retry-After and Allow where they apply."""
    status = status_of(type(error))
    headers = {}
    if error.retryable and status in _RETRY_AFTER_SECONDS:
        headers["Retry-After"] = str(_RETRY_AFTER_SECONDS[status])
    if isinstance(error, errors.MethodNotAllowed):
        headers["Allow"] = ", ".join(error.details.get("allowed", ()))
    text = json.dumps(error_body(error, request_id), default=str, allow_nan=False)
    return Sent(status, (text.encode(),), headers)


def error_body(error: errors.SandboxdError, request_id: str) -> dict[str, Any]:
    """Return the JSON object of an error."""
    body = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
        "details": error.details,
        "request_id": request_id,
    }
    return {"error": body}


def raw_error(error: errors.SandboxdError) -> bytes:
    """Return an error as the bytes of an HTTP answer, for a connection refused at once."""
    request_id = new_id()
    sent = send_error(error, request_id)
    more = "".join(f"{name}: {value}\r\n" for name, value in sent.headers.items())
    head = (
        f"HTTP/1.1 {sent.status} Refused\r\nContent-Type: {_JSON}\r\nX-Request-Id: {request_id}\r\n"
        f"Content-Length: {len(sent.body)}\r\nConnection: close\r\n{more}\r\n"
    )
    return head.encode() + sent.body


def internal_error(exc: Exception, request_id: str, what: str) -> web.Response:
    """Log a bug's traceback, and return an answer with the request id to find the log line by."""
    logger.error("cannot serve %s (request %s): bug", what, request_id, exc_info=exc)
    error = errors.InternalError(
        "cannot serve the request: internal error",
        hint="look for the request id in the journal of sandboxd",
    )
    return error_response(error, request_id)


def broken_request(status: int, message: str | None) -> web.Response:
    """Return the answer to malformed HTTP; the connection is closed after the answer."""
    cause = (message or "not HTTP/1.1").partition("\n")[0].strip().rstrip(":.") or "not HTTP/1.1"
    request_id = new_id()
    logger.debug("refused a broken request (request %s): %s", request_id, cause)
    error: errors.SandboxdError
    if status >= 500:
        error = errors.InternalError("cannot serve the request: internal error")
    else:
        error = errors.InvalidRequest(f"cannot read the request: {cause}")
    response = error_response(error, request_id)
    response.headers["X-Request-Id"] = request_id
    response.force_close()
    return response
