# SPDX-License-Identifier: Apache-2.0
"""Requests made from the OpenAPI document to a real daemon, sensible and not: each gets an answer
that the document announces, and none is a 500."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.document import answer_problems
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

FULL_COUNT = 10_000
# Of a stream that does not end by itself.
READ_BYTES = 1 << 20
SANDBOXES = 4
BUGS = {500, 501, 502, 504}
# These would turn away the requests that follow, or wait for them to end.
NOT_ASKED = {"/v1/host/drain"}
BAD = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(), st.text(max_size=8),
    st.sampled_from(["", "0", "-1", "NaN", "1e999", "a\0b", "../..", "x" * 5000, "\ud800"]),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.none()),
)  # fmt: skip
ARGV = st.sampled_from(
    [["true"], ["sh", "-c", "echo out; echo err >&2; exit 3"], ["cat"], ["nosuch"], ["/"],
     ["sh", "-c", "kill -9 $$"], ["printf", "\\377\\000"]]
)  # fmt: skip
# What a name says better than its type.
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "argv": ARGV,
    "command": st.sampled_from(["true", "echo hi", "nosuch", "cat; sleep 0.1"]),
    "memory_bytes": st.sampled_from(["16M", 64 << 20, "1G", "1"]),
    "timeout_seconds": st.sampled_from([0.5, "1s", 2, "5min"]),
    "idle_timeout_seconds": st.sampled_from(["1min", 5]),
    "kill_grace_seconds": st.sampled_from([0.1, "0.2s"]),
    "grace_seconds": st.sampled_from([0, 0.1]),
    "max_output_bytes": st.sampled_from([1, "1M"]),
    "cwd": st.sampled_from([".", "/", "nosuch", "/tmp"]),
    "wait": st.sampled_from(["0", "0.1", "100ms"]),
}


def sensible(schema: Any, document: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Values that fit the schema."""
    if name in BY_NAME and schema.get("type") != "boolean" and not is_flag(schema):
        return BY_NAME[name]
    if "$ref" in schema:
        inner = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return sensible(inner, document, name)
    if "anyOf" in schema:
        return st.one_of([sensible(choice, document, name) for choice in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            fields = {key: sensible(one, document, key) for key, one in properties.items()}
            required = {key: fields.pop(key) for key in schema.get("required", ())}
            if properties:
                return st.fixed_dictionaries(required, optional=fields)
            return st.dictionaries(st.from_regex("[a-z]{1,5}", fullmatch=True), st.text("ab"),
                                   max_size=2)  # fmt: skip
        case "array":
            items = sensible(schema.get("items", {}), document)
            return st.lists(items, min_size=schema.get("minItems", 0), max_size=3)
        case "integer":
            least = int(schema.get("minimum", 0))
            return st.integers(least, min(int(schema.get("maximum", least + 1000)), least + 1000))
        case "number":
            return st.floats(0.1, 5)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "string" if "pattern" in schema:
            return st.from_regex(schema["pattern"].replace("$", r"\Z"), fullmatch=True)
    return st.sampled_from([*schema.get("examples", []), "a", "text", "a/b"])


def is_flag(schema: Any) -> bool:
    return any(choice.get("type") == "boolean" for choice in schema.get("anyOf", ()))


def spoiled(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly what fits; else one field more or other, or something else altogether."""

    def spoil(value: Any) -> st.SearchStrategy[Any]:
        if not isinstance(value, dict):
            return BAD
        names = st.sampled_from([*value, "nosuch"])
        return st.builds(lambda name, bad: {**value, name: bad}, names, BAD)

    return st.one_of(strategy, strategy, strategy, strategy.flatmap(spoil), BAD)


class Asking:
    """Draws requests; knows what is there."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.document = daemon.ok("GET", "/openapi.json")
        self.operations = [
            (method.upper(), path, operation)
            for path, methods in sorted(self.document["paths"].items())
            for method, operation in sorted(methods.items())
            if path not in NOT_ASKED
        ]
        self.sandboxes: list[str] = []
        self.executions: dict[str, str] = {}
        self.counts: dict[int, int] = {}
        self.refill()

    def refill(self) -> None:
        """Some that live, and none too many."""
        while len(self.sandboxes) > SANDBOXES:
            self._daemon.request("DELETE", f"/v1/sandboxes/{self.sandboxes.pop(0)}")
        for ref in list(self.sandboxes):
            if self._daemon.request("GET", f"/v1/sandboxes/{ref}").json["state"] != "ready":
                self._daemon.request("DELETE", f"/v1/sandboxes/{ref}")
                self.sandboxes.remove(ref)
        while len(self.sandboxes) < 2:
            made = self._daemon.create(limits={"memory_bytes": "64M"})
            self.sandboxes.append(made["id"])
            ran = self._daemon.execute(made["id"], ["sh", "-c", "echo hi; echo a > a"])
            self.executions[made["id"]] = ran["id"]

    def path(self, draw: Callable[..., Any], template: str) -> str:
        known = draw(st.integers(0, 5)) > 0
        # What is drawn must not depend on what is there, which changes from one time to the next.
        sandbox = self.sandboxes[draw(st.integers(0, 59)) % len(self.sandboxes)]
        execution = self.executions.get(sandbox, "aaaaaaaaaaaa")
        if not known:
            bad = st.sampled_from(["aaaaaaaaaaaa", "nosuch", "A", "%00", "..", "%2e%2e", "x" * 99])
            sandbox, execution = draw(bad), draw(bad)
        below = draw(st.sampled_from(["", "a", "b/c", "%ff", "nosuch", "..", "a/../..", "%00"]))
        return (
            template.replace("{sandbox}", sandbox)
            .replace("{execution}", execution)
            .replace("{path}", below)
        )

    def target(self, draw: Callable[..., Any], path: str, operation: Any) -> str:
        given_ = []
        for parameter in operation.get("parameters", ()):
            is_wanted = parameter["required"] or draw(st.integers(0, 3)) == 0
            if parameter["in"] != "query" or not is_wanted:
                continue
            name = parameter["name"].replace("KEY", "team")
            value = draw(st.one_of(sensible(parameter["schema"], self.document, name), BAD))
            text = value if isinstance(value, str) else json.dumps(value)
            given_.append(f"{name}={quote(text.encode(errors='replace'))}")
        return self.path(draw, path) + ("?" + "&".join(given_) if given_ else "")

    def headers(self, draw: Callable[..., Any], operation: Any) -> dict[str, str]:
        found = {}
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "header" and draw(st.integers(0, 3)) == 0:
                values = ["k1", "k2", "", "a b", "x" * 300, "aaaaaaaaaaaa-1", "bytes=0-1"]
                found[parameter["name"]] = draw(st.sampled_from(values))
        return found

    def body(self, draw: Callable[..., Any], operation: Any) -> tuple[bytes | None, str]:
        content = operation.get("requestBody", {}).get("content", {})
        kind = "application/json"
        if draw(st.integers(0, 20)) == 0:
            kind = draw(st.sampled_from(["text/plain", "application/json; charset=utf-8", ""]))
        if "application/json" in content:
            schema = content["application/json"]["schema"]
            value = draw(spoiled(sensible(schema, self.document)))
            return json.dumps(value).encode(), kind
        if content or draw(st.integers(0, 20)) == 0:
            return draw(st.binary(max_size=64)), kind
        return None, kind

    def note(self, answer: Any, path: str) -> None:
        """Remember what was made."""
        if path == "/v1/sandboxes" and "id" in answer:
            self.sandboxes.append(answer["id"])
        elif path.endswith("/executions") and "sandbox_id" in answer:
            self.executions[answer["sandbox_id"]] = answer["id"]


def ask(
    daemon: Daemon, method: str, target: str, headers: dict[str, str], body: bytes | None
) -> tuple[int, dict[str, str], bytes]:
    """One request; of an answer without an end its beginning."""
    with daemon.connect() as connection:
        client = http.client.HTTPConnection("localhost")
        client.sock = connection
        client.request(method, target, body, headers)
        response = client.getresponse()
        told = dict(response.getheaders())
        data = b""
        if told.get("Content-Type") == "text/event-stream" or "follow=" in target:
            connection.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                data = response.read1(READ_BYTES)
        else:
            data = response.read()
        return response.status, told, data


daemon = daemon_fixture(
    SANDBOX_MEMORY_LIMIT_BYTES="64M",
    SANDBOX_TIMEOUT_SECONDS="2",
    SANDBOX_MAX_TIMEOUT_SECONDS="3",
    SANDBOX_RETENTION_EXECUTIONS="50",
)


@pytest.mark.timeout(7200)
def test_every_answer_is_announced(daemon: Daemon, soak_count: Callable[[int], int]) -> None:
    asking = Asking(daemon)
    count = soak_count(FULL_COUNT)

    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def one(data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(asking.operations) - 1))
        method, path, operation = asking.operations[number]
        target = asking.target(data.draw, path, operation)
        headers = asking.headers(data.draw, operation)
        body, kind = asking.body(data.draw, operation)
        if body is not None and kind:
            headers["Content-Type"] = kind
        status, told, answer = ask(daemon, method, target, headers, body)
        asking.counts[status] = asking.counts.get(status, 0) + 1
        sent = (method, target, headers, body)
        assert status not in BUGS, (sent, answer)
        is_json = told.get("Content-Type", "").startswith("application/json")
        decoded: Any = json.loads(answer) if is_json and answer else answer
        if (
            status == 404
            and isinstance(decoded, dict)
            and decoded["error"]["code"] == "ROUTE_NOT_FOUND"
        ):
            # What was put into the path made another one of it.
            return
        found = list(answer_problems(asking.document, operation, status, told, decoded))
        assert not found, (sent, found)
        if status < 300 and isinstance(decoded, dict):
            asking.note(decoded, path)
        asking.refill()

    one()
    # Both halves of the contract were looked at.
    assert sum(n for status, n in asking.counts.items() if status < 300) > count / 10
    assert sum(n for status, n in asking.counts.items() if status >= 400) > count / 10
    assert daemon.ok("GET", "/readyz") == {"ready": True}
