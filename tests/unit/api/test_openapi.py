# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document says what the server does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sandboxd import errors
from sandboxd.api import openapi
from sandboxd.api.responses import status_of
from sandboxd.api.table import ROUTES
from tests.unit.api.harness import served

DOCUMENT = json.loads(openapi.document(ROUTES))
# The contract's table.
STATUS = {
    400: "INVALID_REQUEST LIMIT_TOO_SMALL LIMIT_TOO_LARGE LIMIT_UNSUPPORTED ISOLATION_UNSUPPORTED",
    403: "ACCESS_DENIED",
    404: "ROUTE_NOT_FOUND SANDBOX_NOT_FOUND EXECUTION_NOT_FOUND FILE_NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "SANDBOX_SUSPENDED SANDBOX_RELEASED EXECUTION_FINISHED LIMIT_BELOW_USAGE NAME_IN_USE "
    "FILE_CONFLICT IDEMPOTENCY_KEY_REUSED STDIN_CLOSED OUTPUT_TIMES_UNKNOWN",
    413: "REQUEST_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    416: "RANGE_NOT_SATISFIABLE",
    422: "EXECUTION_NOT_STARTED",
    429: "CALLER_QUOTA_EXCEEDED EXECUTION_LIMIT_REACHED",
    500: "INTERNAL HOST_STORAGE_FAILED",
    502: "SYSTEMD_REFUSED",
    503: "CAPACITY_EXCEEDED HOST_DISK_FULL DRAINING SYSTEMD_UNAVAILABLE",
    504: "OPERATION_TIMED_OUT",
    507: "SANDBOX_DISK_QUOTA_EXCEEDED SANDBOX_DISK_UNCOUNTABLE",
}


def leaves(error: type[errors.SandboxdError]) -> Iterator[type[errors.SandboxdError]]:
    yield error
    for child in error.__subclasses__():
        yield from leaves(child)


def test_every_error_has_the_status_of_the_contract() -> None:
    expected = {code: status for status, codes in STATUS.items() for code in codes.split()}
    for error in leaves(errors.SandboxdError):
        if error.__module__ == errors.__name__:
            # Bases without a code of their own say INTERNAL and are never raised themselves.
            if error.code != "INTERNAL":
                assert status_of(error) == expected[error.code], error


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_reference_is_defined_and_every_schema_used() -> None:
    defined = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    samples = {f"#/components/examples/{name}" for name in DOCUMENT["components"]["examples"]}
    used = set(references(DOCUMENT))
    assert used <= defined | samples
    assert samples <= used
    unused = {reference.rpartition("/")[2] for reference in defined - used}
    assert all(name.endswith("Query") for name in unused)


def test_every_route_is_there_with_its_errors() -> None:
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        named = {item["name"] for item in operation["parameters"] if item["in"] == "path"}
        assert named == set(route.parameters)
        for error in route.errors:
            response = operation["responses"][str(status_of(error))]
            assert error.code in response["description"]
            if route.method == "HEAD":
                assert "content" not in response
                continue
            schema = response["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}
        assert {"400", "405", "500"} <= set(operation["responses"])
    identities = [op["operationId"] for path in DOCUMENT["paths"].values() for op in path.values()]
    assert len(set(identities)) == len(identities)


def test_answers_have_all_their_fields_always() -> None:
    execution = DOCUMENT["components"]["schemas"]["ExecutionAnswer"]
    optional = set(execution["properties"]) - set(execution["required"])
    assert optional == {"stdout_base64", "stderr_base64"}


async def test_it_is_served() -> None:
    async with served() as server:
        answered = await server.ask("GET", "/openapi.json")
        assert answered.json == DOCUMENT
        assert answered.json["openapi"].startswith("3.1")


async def test_a_real_answer_has_the_fields_of_its_schema() -> None:
    async with served() as server:
        run = (await server.ask("POST", "/v1/run", {"argv": ["true"]})).json
        for name, answer in {
            "ExecutionAnswer": run,
            "SandboxAnswer": (await server.ask("GET", f"/v1/sandboxes/{run['sandbox_id']}")).json,
            "HostAnswer": (await server.ask("GET", "/v1/host")).json,
            "HealthAnswer": (await server.ask("GET", "/healthz")).json,
        }.items():
            schema = DOCUMENT["components"]["schemas"][name]
            assert set(schema["required"]) <= set(answer) <= set(schema["properties"])
