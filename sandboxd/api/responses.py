# SPDX-License-Identifier: Apache-2.0
"""From answers and errors to HTTP: the only place that knows status numbers of errors."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from pydantic import BaseModel
from pydantic_core import to_json

from sandboxd import errors
from sandboxd.names import new_id

logger = logging.getLogger(__name__)

# Looked up along the class's bases, so a leaf class is here only where it differs.
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
}
_SMALL_BYTES = 64 * 1024
# How soon a client may try again; a release is what frees capacity, so there is no better guess.
_RETRY_AFTER_SECONDS = 5
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handler answers with."""

    status: int
    answer: BaseModel | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def status_of(error: type[errors.SandboxdError]) -> int:
    """The HTTP status of an error's class."""
    return next(STATUS[base] for base in error.__mro__ if base in STATUS)


@dataclass(frozen=True, slots=True)
class Sent:
    """An answer as it goes out; body: JSON, or nothing at all."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        """As HTTP."""
        if not self.body:
            return web.Response(status=self.status, headers=self.headers)
        # A large one as a file, of which the transport gets a piece when it has room for it. Not
        # all: aiohttp 3.11 reads files in a thread, and a connection that ends would lose it.
        body = self.body if len(self.body) <= _SMALL_BYTES else io.BytesIO(self.body)
        return web.Response(status=self.status, body=body, content_type=_JSON, headers=self.headers)


def send_reply(reply: Reply) -> Sent:
    """A handler's answer."""
    # A MiB of output may be six in JSON, and each copy of it is memory: no text in between.
    body = b"" if reply.answer is None else to_json(reply.answer)
    return Sent(reply.status, body, reply.headers)


def error_response(error: errors.SandboxdError, request_id: str) -> web.Response:
    """An error as HTTP."""
    return send_error(error, request_id).response()


def send_error(error: errors.SandboxdError, request_id: str) -> Sent:
    """The answer that an error is."""
    status = status_of(type(error))
    headers = {}
    if status == 503:
        headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    if isinstance(error, errors.MethodNotAllowed):
        headers["Allow"] = ", ".join(error.details.get("allowed", ()))
    text = json.dumps(error_body(error, request_id), default=str, allow_nan=False)
    return Sent(status, text.encode(), headers)


def error_body(error: errors.SandboxdError, request_id: str) -> dict[str, Any]:
    """The form of every error."""
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
    """An error as a whole HTTP answer, for a connection that gets no other."""
    request_id = new_id()
    sent = send_error(error, request_id)
    head = (
        f"HTTP/1.1 {sent.status} Refused\r\nContent-Type: {_JSON}\r\nX-Request-Id: {request_id}\r\n"
        f"Content-Length: {len(sent.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + sent.body


def internal_error(exc: Exception, request_id: str, what: str) -> web.Response:
    """The answer to a bug: the journal has the traceback, the client the id to find it by."""
    logger.error("cannot serve %s (request %s): bug", what, request_id, exc_info=exc)
    error = errors.InternalError(
        "cannot serve the request: internal error",
        hint="look for the request id in the journal of sandboxd",
    )
    return error_response(error, request_id)


def broken_request(status: int, message: str | None) -> web.Response:
    """The answer to bytes that are not HTTP; the connection ends with it."""
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
