# SPDX-License-Identifier: Apache-2.0
"""Examples for the OpenAPI document: requests are written here, answers made from the schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxd.errors import SandboxdError

_ID = "k3v7q2mzt5ab"
_TIME = "2026-01-02T03:04:05Z"

# Model -> name -> body.
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "CreateSandbox": {
        "defaults": {},
        "limits": {
            "name": "build",
            "limits": {"memory_bytes": "512M", "cpus": "150%", "pids": 200},
            "require": ["memory_bytes", "pids"],
            "idle_timeout_seconds": "10min",
            "metadata": {"team": "blue"},
        },
    },
    "ChangeSandbox": {"more": {"limits": {"memory_bytes": "1G"}, "timeout_seconds": 3600}},
    "StartExecution": {
        "exact": {"argv": ["python3", "-c", "print(1)"], "timeout_seconds": 30},
        "shell": {"command": "make -j2 2>&1 | tail", "cwd": "src", "wait": False},
    },
    "Run": {
        "once": {"argv": ["sh", "-c", "echo hi"], "limits": {"memory_bytes": "128M"}},
        "input": {"argv": ["wc", "-c"], "stdin": "abc"},
        "files": {
            "command": "python3 main.py > out.txt",
            "files": [{"path": "main.py", "text": "print(6 * 7)"}],
            "read_files": ["out.txt"],
        },
    },
    "TerminalBody": {"wide": {"rows": 50, "cols": 132}},
    "KillExecution": {
        "all": {},
        "gently": {"grace_seconds": 5},
        "signal": {"signal": "SIGUSR1"},
    },
}
_BY_NAME: Mapping[str, Any] = {
    "id": _ID,
    "sandbox_id": "abcdefghij23",
    "execution_id": _ID,
    "request_id": "r5w2c7xk4dmn",
    "instance_id": "i5w2c7xk4dmn",
    "name": "build",
    "argv": ["sh", "-c", "echo hi"],
    "stdout": "hi\n",
    "stderr": "",
    "unit": "sandboxd-3f-abcdefghij23.slice",
    "next_cursor": None,
    "status": "EXITED",
    "error_code": None,
    "limit_owner": None,
    "signal": None,
}


def of_answer(schema: Mapping[str, Any], schemas: Mapping[str, Any], name: str = "") -> Any:
    """Return a value that fits `schema`; name: the property's name, which may select the value."""
    if "$ref" in schema:
        return of_answer(schemas[schema["$ref"].rpartition("/")[2]], schemas, name)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        known = _BY_NAME.get(name)
        return known if known in schema["enum"] else schema["enum"][0]
    choices = schema.get("anyOf") or schema.get("oneOf")
    kinds = {schema.get("type"), *(choice.get("type") for choice in choices or ())}
    if name in _BY_NAME and _kind(_BY_NAME[name]) in kinds:
        return _BY_NAME[name]
    if choices:
        told = [choice for choice in choices if choice.get("type") != "null"]
        return of_answer(told[0], schemas, name) if told else None
    return _of_type(schema, schemas, name)


def _of_type(schema: Mapping[str, Any], schemas: Mapping[str, Any], name: str) -> Any:
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            required = schema.get("required", ())
            made = {key: of_answer(properties[key], schemas, key) for key in required}
            more = schema.get("additionalProperties")
            if not properties and isinstance(more, dict) and more.get("type") != "string":
                made[_key(name)] = of_answer(more, schemas)
            return made
        case "array":
            items = schema.get("items", {})
            return [of_answer(items, schemas)] if items.get("type") != "string" else []
        case "integer":
            return max(int(schema.get("minimum", 0)), _number(name))
        case "number":
            return max(float(schema.get("minimum", 0)), 1.5)
        case "boolean":
            return False
        case "null":
            return None
        case "string":
            return _TIME if schema.get("format") == "date-time" else "text"
    return {}


def _kind(value: Any) -> str:
    kinds = {list: "array", str: "string", type(None): "null"}
    return kinds[type(value)]


def _key(name: str) -> str:
    return {"pressure": "memory", "enforcement": "memory_bytes"}.get(name, "basic")


def _number(name: str) -> int:
    if name.endswith("_bytes") or name.endswith("_per_second"):
        return 1 << 20
    return 0 if name in ("exit_code", "leftovers_killed") else 1


def of_error(error: type[SandboxdError]) -> dict[str, Any]:
    """Return the body of an answer with this error."""
    cause = (error.__doc__ or "").partition("\n")[0].removeprefix("Raised when ").rstrip(".")
    return {
        "error": {
            "code": error.code,
            "message": f"cannot do what was asked: {cause.partition(';')[0]}",
            "hint": None,
            "retryable": error.retryable,
            "details": {},
            "request_id": _BY_NAME["request_id"],
        }
    }
