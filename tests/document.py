# SPDX-License-Identifier: Apache-2.0
"""Whether an answer is what an OpenAPI document says: the part of JSON Schema that ours uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

KINDS: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
    "boolean": bool, "null": type(None),
}  # fmt: skip
KNOWN = {
    "$ref", "anyOf", "type", "enum", "const", "properties", "required", "additionalProperties",
    "items", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "minLength",
    "maxLength", "pattern", "maxProperties", "title", "description", "default", "examples",
    "format", "contentEncoding", "propertyNames", "x-event-data", "prefixItems",
}  # fmt: skip


def problems(value: Any, schema: Mapping[str, Any], document: Any, at: str = "$") -> Iterator[str]:
    """What of `value` does not fit, in words."""
    assert set(schema) <= KNOWN, f"{at}: a keyword that is not checked: {set(schema) - KNOWN}"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from problems(value, document["components"]["schemas"][name], document, at)
        return
    if "anyOf" in schema:
        found = [list(problems(value, choice, document, at)) for choice in schema["anyOf"]]
        if all(found):
            yield f"{at}: {value!r:.80} fits nothing of {found!r:.300}"
        return
    kind = schema.get("type")
    if kind is not None:
        is_bool = isinstance(value, bool) and kind != "boolean"
        if is_bool or not isinstance(value, KINDS[kind]):
            yield f"{at}: {value!r:.80} is no {kind}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r:.80} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r:.80} is not {schema['const']!r}"
    match value:
        case dict():
            yield from _object(value, schema, document, at)
        case list():
            for number, entry in enumerate(value):
                yield from problems(entry, schema.get("items", {}), document, f"{at}[{number}]")
        case str():
            if "pattern" in schema and re.search(schema["pattern"], value) is None:
                yield f"{at}: {value!r:.80} does not match {schema['pattern']}"
        case bool() | None:
            pass
        case int() | float():
            if value < schema.get("minimum", value) or value > schema.get("maximum", value):
                yield f"{at}: {value} is out of bounds"


def _object(
    value: dict[str, Any], schema: Mapping[str, Any], document: Any, at: str
) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: {name} is missing"
    rest = schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name in properties:
            yield from problems(inner, properties[name], document, f"{at}.{name}")
        elif rest is False:
            yield f"{at}: {name} is not in the schema"
        elif isinstance(rest, dict):
            yield from problems(inner, rest, document, f"{at}.{name}")


def answer_problems(
    document: Any, operation: Any, status: int, headers: Mapping[str, str], body: Any
) -> Iterator[str]:
    """What of an answer its operation does not announce. body: decoded JSON, or bytes."""
    lower = {name.lower(): value for name, value in headers.items()}
    response = operation["responses"].get(str(status))
    if response is None:
        yield f"{status} is not announced: {body!r:.300}"
        return
    for name, about in response.get("headers", {}).items():
        told = lower.get(name.lower())
        if told is None:
            yield f"{status}: no {name}"
        elif "pattern" in about["schema"] and not re.search(about["schema"]["pattern"], told):
            yield f"{status}: {name} is {told!r}"
    kind = lower.get("content-type", "").partition(";")[0]
    content = response.get("content", {})
    if not content:
        if body:
            yield f"{status}: a body where none is announced"
    elif kind not in content:
        yield f"{status}: {kind!r} is none of {sorted(content)}"
    elif kind == "application/json":
        yield from problems(body, content[kind]["schema"], document)
        if status >= 400 and body["error"]["code"] not in response["description"].split(" or "):
            yield f"{status}: {body['error']['code']} is not announced"
