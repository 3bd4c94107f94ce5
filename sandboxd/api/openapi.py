# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI 3.1 document of a table of routes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from sandboxd import __version__, errors
from sandboxd.api import examples, replays
from sandboxd.api.responses import status_of
from sandboxd.api.routes import Access, AnyRoute
from sandboxd.core.names import ID_PATTERN, NAME_PATTERN
from sandboxd.wire.host import ErrorAnswer
from sandboxd.wire.requests import Nothing

_REF = "#/components/schemas/{model}"
_EXAMPLE_REF = "#/components/examples/{name}"
_PARAMETERS: dict[str, dict[str, Any]] = {
    "sandbox": {
        "description": "the sandbox's id, or the name its owner gave it",
        "schema": {"type": "string", "pattern": f"{ID_PATTERN}|{NAME_PATTERN}"},
    },
    "execution": {
        "description": "the execution's id",
        "schema": {"type": "string", "pattern": ID_PATTERN},
    },
    "path": {
        "description": "a path in the sandbox's home, slashes and all; bytes that are not UTF-8 "
        "are percent-encoded; `..` is refused",
        "schema": {"type": "string"},
    },
}
# Query parameters given once for each key.
_BY_KEY = {"metadata": "metadata.KEY"}
_REQUEST_ID = {"X-Request-Id": {"schema": {"type": "string", "pattern": ID_PATTERN}}}
# Errors of any route, raised by the layer around the handlers.
_COMMON = (errors.InvalidRequest, errors.MethodNotAllowed, errors.InternalError)
_BODY = (errors.RequestTooLarge, errors.UnsupportedMediaType)
_WITHOUT_BODY = (101, 204)
_BYTES = {"schema": {"type": "string", "format": "binary"}}
# Errors that an Idempotency-Key may add, on every POST.
_KEYED = (
    errors.IdempotencyKeyReused,
    errors.QuotaExceeded,
    errors.HostDiskFull,
    errors.HostStorageFailed,
    errors.Draining,
)
_KEY_PARAMETER = {
    "name": replays.HEADER,
    "in": "header",
    "required": False,
    "description": "a retry with the same key gets the first answer, for 10 minutes after it",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def document(routes: Iterable[AnyRoute]) -> bytes:
    """Return the document as JSON."""
    routes = tuple(routes)
    models = {route.body for route in routes} | {route.query for route in routes}
    models |= {route.answer for route in routes if route.answer is not None} | {ErrorAnswer}
    models |= {route.event_data for route in routes if route.event_data is not None}
    ordered = sorted(models - {Nothing}, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in ordered], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operations = paths.setdefault(route.path, {})
        operations[route.method.lower()] = _operation(route, schemas["$defs"])
    paths["/openapi.json"] = {"get": _self_operation()}
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "sandboxd",
                "version": __version__,
                "description": "Runs commands under kernel-held limits. Served on a Unix socket; "
                "the caller is who the kernel says it is.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "http://localhost"}],
            "paths": paths,
            "components": {
                "schemas": schemas["$defs"],
                "examples": _examples(routes, schemas["$defs"]),
            },
        }
    ).encode()


def _operation(route: AnyRoute, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{route.path.title()}".translate(
            {ord(char): None for char in "/{}."}
        ),
        "summary": route.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, **_PARAMETERS[name]}
            for name in route.parameters
        ]
        + _query_parameters(route.query, schemas)
        + [
            {
                "name": name,
                "in": "header",
                "required": False,
                "description": what,
                "schema": {"type": "string"},
            }
            for name, what in route.headers.items()
        ]
        + ([_KEY_PARAMETER] if route.takes_key else []),
        "responses": _successes(route) | _errors(route),
    }
    if route.method == "HEAD":
        for response in operation["responses"].values():
            response.pop("content", None)
    if route.streams_body:
        operation["requestBody"] = {"required": True, "content": {"*/*": _BYTES}}
    elif route.body is not Nothing:
        operation["requestBody"] = {
            "required": any(field.is_required() for field in route.body.model_fields.values()),
            "content": _json(route.body, _samples(route.body)),
        }
    return operation


def _query_parameters(model: type[BaseModel], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    if model is Nothing:
        return []
    properties = schemas[model.__name__]["properties"]
    required = schemas[model.__name__].get("required", ())
    return [
        {
            "name": _BY_KEY.get(name, name),
            "in": "query",
            "required": name in required,
            "schema": schema,
        }
        for name, schema in properties.items()
    ]


def _samples(model: type[BaseModel]) -> dict[str, Any]:
    written = examples.REQUESTS.get(model.__name__, {})
    return {name: {"value": value} for name, value in written.items()}


def _successes(route: AnyRoute) -> dict[str, Any]:
    content = {}
    if route.answer is not None:
        name = route.answer.__name__
        content = _json(route.answer, {name: {"$ref": _EXAMPLE_REF.format(name=name)}})
    elif route.raw_type is not None:
        content = {route.raw_type: _BYTES}
    if route.event_data is not None:
        # OpenAPI before 3.2 cannot describe the items of a stream.
        schema = {"type": "string", "x-event-data": _ref(route.event_data)}
        content = {"text/event-stream": {"schema": schema}}
    return {
        str(status): _response(description, {} if status in _WITHOUT_BODY else content)
        for status, description in route.statuses.items()
    }


def _raised(route: AnyRoute) -> list[type[errors.SandboxdError]]:
    """Return all errors that a route can answer."""
    raised: list[type[errors.SandboxdError]] = [*_COMMON, *route.errors]
    if route.access is not Access.ANYONE:
        raised.append(errors.AccessDenied)
    if route.streams_body:
        raised.append(errors.UnsupportedMediaType)
    else:
        raised.extend(_BODY)
    if route.takes_key:
        raised.extend(_KEYED)
    return raised


def _errors(route: AnyRoute) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for error in _raised(route):
        by_status.setdefault(status_of(error), []).append(error.code)
    responses = {}
    for status, codes in sorted(by_status.items()):
        named = sorted(set(codes))
        samples = {code: {"$ref": _EXAMPLE_REF.format(name=code)} for code in named}
        response = _response(" or ".join(named), _json(ErrorAnswer, samples))
        if status in (429, 503):
            response["headers"]["Retry-After"] = {"schema": {"type": "integer"}}
        responses[str(status)] = response
    return responses


def _self_operation() -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": "getOpenapi",
        "summary": "This document",
        "responses": {"200": _response("this document", content)},
    }


def _response(description: str, content: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": description, "headers": dict(_REQUEST_ID)}
    if content:
        response["content"] = content
    return response


def _json(model: type[BaseModel], samples: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": _ref(model)}
    if samples:
        content["examples"] = samples
    return {"application/json": content}


def _examples(routes: Iterable[AnyRoute], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return examples of all answers and errors, by the model's name or the error's code."""
    values: dict[str, Any] = {}
    for route in routes:
        if route.answer is not None:
            name = route.answer.__name__
            values[name] = examples.of_answer(schemas[name], schemas)
        for error in _raised(route):
            values[error.code] = examples.of_error(error)
    return {name: {"value": values[name]} for name in sorted(values)}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}
