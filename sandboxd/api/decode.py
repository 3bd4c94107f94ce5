# SPDX-License-Identifier: Apache-2.0
"""From HTTP to request models: bodies and queries, bounded and validated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

from aiohttp import web
from pydantic import ValidationError

from sandboxd.api.shares import Share
from sandboxd.core.quantity import format_bytes
from sandboxd.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType
from sandboxd.wire.meant import meant
from sandboxd.wire.requests import Request

BODY_SECONDS = 30.0
_MAX_REPORTED_FIELDS = 20
# Each guess takes a comparison with every field of the model.
_MAX_GUESSED_FIELDS = 3
_VALUE_ERROR = "Value error, "
M = TypeVar("M", bound=Request)


async def read_body(request: web.BaseRequest, max_bytes: int, share: Share) -> bytes:
    """Return the body. Raises UnsupportedMediaType, RequestTooLarge, InvalidRequest."""
    _check_encoding(request)
    if request.content_length is not None and request.content_length > max_bytes:
        raise _too_large(max_bytes)
    if request.body_exists:
        # The body itself, and the decoded request.
        await share.hold(2 * (request.content_length or max_bytes))
    await _continue(request)
    body = await _read_bounded(request, max_bytes)
    if body and request.content_type != "application/json":
        raise UnsupportedMediaType(
            f"cannot read the body: its type is {request.content_type[:64]!r}",
            hint="send JSON with Content-Type: application/json",
        )
    return body


async def body_chunks(request: web.BaseRequest) -> AsyncGenerator[bytes, None]:
    """Yield a raw body in pieces up to 128 KiB. Raises UnsupportedMediaType, InvalidRequest."""
    _check_encoding(request)
    await _continue(request)
    try:
        while chunk := await request.content.readany():
            yield chunk
    except web.RequestPayloadError as exc:
        raise InvalidRequest("cannot read the body: it is broken") from exc


def _check_encoding(request: web.BaseRequest) -> None:
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType(
            "cannot read the body: compressed bodies are not taken",
            hint="leave Content-Encoding out",
        )


async def _continue(request: web.BaseRequest) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # aiohttp takes an answer for begun once output_size is not 0.
        request.writer.output_size = 0


async def _read_bounded(request: web.BaseRequest, max_bytes: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while chunk := await request.content.readany():
                body += chunk
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
    except TimeoutError as exc:
        raise InvalidRequest(
            f"cannot read the body: not complete after {BODY_SECONDS:g} seconds"
        ) from exc
    except web.RequestPayloadError as exc:
        raise InvalidRequest("cannot read the body: it is broken") from exc
    return bytes(body)


def _too_large(max_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"cannot take the body: the most is {max_bytes} bytes ({format_bytes(max_bytes)})",
        hint="give large input to a command in a file",
        details={"maximum_bytes": max_bytes},
    )


def read_query(request: web.BaseRequest, model: type[M]) -> M:
    """Return the query string as a `model`. Raises InvalidRequest."""
    query = request.rel_url.query
    for name in query:
        if len(query.getall(name)) > 1:
            raise InvalidRequest.field(name[:64], "given more than once")
    try:
        return model.model_validate(dict(query))
    except ValidationError as exc:
        raise _invalid(exc, model, "the query") from None


def validate(model: type[M], body: bytes) -> M:
    """Return JSON as a `model`, empty = {}. Raises InvalidRequest with a reason per bad field."""
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as exc:
        raise _invalid(exc, model, "the body") from None


def _invalid(exc: ValidationError, model: type[Request], whole: str) -> InvalidRequest:
    """Return the error without pydantic's copy of the input: secrets, or bytes that are no JSON."""
    found = exc.errors(include_url=False, include_context=False, include_input=False)
    fields = []
    for number, error in enumerate(found[:_MAX_REPORTED_FIELDS]):
        path = ".".join(str(part)[:128] for part in error["loc"])
        reason = error["msg"].removeprefix(_VALUE_ERROR)
        if error["type"] == "extra_forbidden":
            reason = "unknown field"
            near = meant(model, error["loc"]) if number < _MAX_GUESSED_FIELDS else None
            reason += f": did you mean {near}?" if near else ""
        fields.append({"path": path, "reason": _lower(reason)})
    first = fields[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return InvalidRequest(
        f"cannot accept {first['path'] or whole}: {first['reason']}{more}",
        details={"fields": fields},
    )


def _lower(reason: str) -> str:
    return reason[:1].lower() + reason[1:] if not reason[:2].isupper() else reason
