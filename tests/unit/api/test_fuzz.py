# SPDX-License-Identifier: Apache-2.0
"""Whatever a caller sends: an answer in the contract's form, and never a 500."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from sandboxd.api.decode import validate
from sandboxd.api.table import ROUTES
from sandboxd.core.model import Command, LimitChanges
from sandboxd.errors import InvalidRequest
from sandboxd.wire.requests import (
    ChangeSandbox,
    CreateSandbox,
    ExecutionFields,
    KillExecution,
    LimitsBody,
    Request,
    Run,
    StartExecution,
)
from tests.unit.api.harness import served

ID = "abcdefghijkl"
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["1", "0", "512M", "90s", "150%", "a\0", "kernel", "auto", "true", "1e400"])
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner,
                                                                max_size=3),
    max_leaves=6,
)  # fmt: skip


def bodies(model: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the model's own names, mostly, and anything in them."""
    limits = st.dictionaries(st.sampled_from(sorted(LimitsBody.model_fields)), values, max_size=4)
    sensible = {
        "limits": limits,
        "argv": st.lists(st.text(max_size=5), max_size=3),
        "env": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    }
    fields = {
        name: sensible.get(name, values) | values for name in [*sorted(model.model_fields), "x"]
    }
    return st.fixed_dictionaries({}, optional=fields)


models: st.SearchStrategy[type[Request]] = st.sampled_from(
    [CreateSandbox, ChangeSandbox, StartExecution, Run, KillExecution]
)


@given(st.data())
@settings(max_examples=100)
def test_models_take_or_refuse_with_reasons(data: st.DataObject) -> None:
    model = data.draw(models)
    body = json.dumps(data.draw(bodies(model) | values)).encode()
    try:
        taken = validate(model, body)
    except InvalidRequest as exc:
        for field in exc.details["fields"]:
            assert field["reason"]
        json.dumps(exc.details, allow_nan=False)
        return
    if isinstance(taken, ExecutionFields):
        command = taken.decode()
        assert isinstance(command, Command)
        assert command.argv
        assert not any("\0" in word for word in command.argv)
        for value in taken.changes().as_dict().values():
            assert value > 0


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_an_object(body: bytes) -> None:
    with suppress(InvalidRequest):
        assert isinstance(validate(CreateSandbox, body), CreateSandbox)


segments = st.sampled_from(
    [
        "v1",
        "sandboxes",
        "executions",
        "files",
        "directories",
        "archive",
        ID,
        "name",
        "kill",
        "output",
        "run",
        "%2e%2e",
        "%00",
        "x" * 300,
    ]
)
paths = st.lists(segments, max_size=6).map(lambda parts: "/" + "/".join(parts)) | st.sampled_from(
    [
        route.path.replace("{sandbox}", "box").replace("{execution}", ID).replace("{path}", "a/b")
        for route in ROUTES
    ]
)
queries = st.dictionaries(
    st.sampled_from(["wait", "offset", "stream", "limit", "cursor", "state", "name", "x"]),
    st.text(alphabet="0123456789azAZ-_=.%", max_size=12),
    max_size=2,
).map(lambda query: "&".join(f"{name}={value}" for name, value in query.items()))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT", "OPTIONS"]),
            paths,
            queries,
            bodies(Run) | bodies(CreateSandbox) | values,
        ),
        min_size=5,
        max_size=20,
    )
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_routes_never_answer_500(requests: list[tuple[str, str, str, Any]]) -> None:
    async def ask_all() -> None:
        async with served() as server:
            await server.ask("POST", "/v1/sandboxes", {"name": "box"})
            for method, path, query, body in requests:
                answered = await server.ask(method, f"{path}?{query}", body)
                assert answered.status < 500, (method, path, query, body)
                assert answered.headers["x-request-id"]
                if answered.status >= 400:
                    assert answered.error["code"]

    asyncio.run(ask_all())


def test_the_wire_has_exactly_the_limits_of_the_model() -> None:
    assert set(LimitsBody.model_fields) == set(LimitChanges.__dataclass_fields__)
