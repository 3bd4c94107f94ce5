# SPDX-License-Identifier: Apache-2.0
"""docs/api.md, the OpenAPI document and the server say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandboxd import errors
from sandboxd.api import examples, openapi
from sandboxd.api.responses import status_of
from sandboxd.api.table import ROUTES
from sandboxd.core.limits import LIMITS
from sandboxd.core.model import LimitChanges
from sandboxd.daemon.config import Config
from tests.document import answer_problems, problems
from tests.unit.api.harness import served

PAGE = (Path(__file__).parents[3] / "docs/api.md").read_text()
DOCUMENT = json.loads(openapi.document(ROUTES))
METHOD = re.compile(r"GET|HEAD|PUT|POST|PATCH|DELETE")


def rows(heading: str) -> Iterator[list[str]]:
    """Cells of the table after a line that starts with `heading`."""
    lines = PAGE[PAGE.index(heading) :].splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("| --- |"))
    for line in lines[begin + 1 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def operations() -> set[tuple[str, str]]:
    return {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }


def documented() -> Iterator[tuple[str, str]]:
    """Method and path of every route in the page's first table, abbreviations written out."""
    for cells in rows("# The API"):
        methods: list[str] = []
        is_done = False
        for token in re.findall(r"`([^`]+)`", cells[0]):
            words = token.split()
            named = [word for word in words if METHOD.fullmatch(word)]
            if named and is_done:
                methods, is_done = [], False
            methods += named
            path = next((word for word in words if word[0] in "/."), None)
            if path is None:
                continue
            is_done = True
            path = path.partition("?")[0].replace("{id}", "{sandbox}")
            path = path.replace("{eid}", "{execution}")
            for method in methods:
                yield method, written_out(method, path)


def written_out(method: str, path: str) -> str:
    if not path.startswith("..."):
        return path
    suffix = path.removeprefix("...")
    fitting = {full for verb, full in operations() if verb == method and full.endswith(suffix)}
    assert len(fitting) == 1, (method, path, fitting)
    return fitting.pop()


def codes() -> dict[str, int]:
    """Of every error that can be answered."""
    found = {}
    waiting: list[type[errors.SandboxdError]] = [errors.SandboxdError]
    while waiting:
        error = waiting.pop()
        waiting += error.__subclasses__()
        if error.__module__.startswith(("sandboxd.client", "sandboxd.ctl")):
            # Of the other end.
            continue
        # Bases without a code of their own are never raised themselves.
        if error.code != "INTERNAL" or error is errors.InternalError:
            found[error.code] = status_of(error)
    return found


def test_the_page_has_exactly_the_routes_of_the_document() -> None:
    assert set(documented()) == operations()


def test_the_page_has_exactly_the_errors_of_the_server() -> None:
    told = {
        code: int(cells[0])
        for cells in rows("## Errors")
        for code in re.findall(r"`([A-Z_]+)`", cells[1])
    }
    assert told == codes()


def test_the_page_has_exactly_the_limits_of_the_server() -> None:
    told = {cells[0].strip("`"): cells[1] for cells in rows("## Limits")}
    assert list(told) == list(LimitChanges.__dataclass_fields__)
    owners = {cells[0].strip("`"): cells[2].partition(",")[0] for cells in rows("## Limits")}
    assert owners == {limit.name: limit.owners.value for limit in LIMITS}
    defaults = Config()
    assert told["cpus"] == f"{defaults.cpu_quota:g}"
    assert told["cpu_weight"].startswith(f"{defaults.cpu_weight};")
    assert told["pids"] == str(defaults.pids_limit)
    assert told["open_files"] == str(defaults.open_files)
    assert told["timeout_seconds"] == f"{defaults.timeout_seconds:g}"
    assert told["disk_bytes"] == f"{defaults.disk_limit_bytes >> 30} GiB"
    assert told["max_output_bytes"] == f"{defaults.max_output_bytes >> 20} MiB"
    for name in ("io_read_bytes_per_second", "io_write_bytes_per_second"):
        assert told[name] == f"{getattr(defaults, name) >> 20} MiB"


def test_every_error_of_the_document_is_one_of_the_server() -> None:
    known = codes()
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                for code in response["description"].split(" or ") if int(status) >= 400 else ():
                    assert known[code] == int(status)


def test_every_body_and_answer_has_examples_that_fit() -> None:
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            parts: list[Any] = [operation.get("requestBody"), *operation["responses"].values()]
            for part in filter(None, parts):
                content = part.get("content", {}).get("application/json")
                if content is None or "$ref" not in content["schema"]:
                    continue
                for example in content["examples"].values():
                    if "$ref" in example:
                        name = example["$ref"].rpartition("/")[2]
                        example = DOCUMENT["components"]["examples"][name]
                    assert not list(problems(example["value"], content["schema"], DOCUMENT))


def test_every_written_example_is_a_request_that_is_taken() -> None:
    models = {route.body.__name__: route.body for route in ROUTES}
    assert set(examples.REQUESTS) <= set(models)
    for name, written in examples.REQUESTS.items():
        for body in written.values():
            models[name].model_validate_json(json.dumps(body))


async def test_the_server_has_every_route_of_the_document_and_answers_as_announced() -> None:
    async with served() as server:
        box = (await server.ask("POST", "/v1/sandboxes", {})).json
        target = f"/v1/sandboxes/{box['id']}/executions"
        run = (await server.ask("POST", target, {"argv": ["true"]})).json
        release = ("DELETE", "/v1/sandboxes/{sandbox}")
        for method, path in [*sorted(operations() - {release}), release]:
            operation = DOCUMENT["paths"][path][method.lower()]
            if any("event-stream" in kind for response in operation["responses"].values()
                   for kind in response.get("content", {})):  # fmt: skip
                continue
            full = path.replace("{sandbox}", run["sandbox_id"]).replace("{path}", "a")
            full = full.replace("{execution}", run["id"])
            answered = await server.ask(method, full)
            assert answered.headers.get("x-request-id")
            if answered.status >= 400 and method != "HEAD":
                assert answered.error["code"] not in ("ROUTE_NOT_FOUND", "METHOD_NOT_ALLOWED")
            is_json = answered.headers.get("content-type", "").startswith("application/json")
            body = answered.json if is_json and answered.body else answered.body
            found = list(
                answer_problems(DOCUMENT, operation, answered.status, answered.headers, body)
            )
            assert not found, (method, path, found)
