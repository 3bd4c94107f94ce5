# SPDX-License-Identifier: Apache-2.0
"""Who calls is who the kernel says: non-root callers see their own only, root sees all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.caller import FIRST_UID, SECOND_UID, CallerOf
from tests.contract.probes import refused, uid_inside
from tests.harness import Daemon

pytestmark = pytest.mark.usefixtures("requires_root")


@pytest.fixture
def owned(daemon: Daemon, first: CallerOf) -> Iterator[Any]:
    """A sandbox of the first caller."""
    made = first.ok("POST", "/v1/sandboxes", {"name": "mine"})
    yield made
    daemon.release(made["id"])


def ids(answer: Any, name: str) -> list[str]:
    return [entry["id"] for entry in answer[name]]


def test_the_owner_is_the_caller(first: CallerOf, owned: Any) -> None:
    assert owned["owner_uid"] == FIRST_UID
    assert first.ok("GET", "/v1/sandboxes/mine")["id"] == owned["id"]
    body = {"argv": ["echo", "hi"]}
    assert first.ok("POST", f"/v1/sandboxes/{owned['id']}/executions", body)["stdout"] == "hi\n"


def test_another_caller_does_not_see_it(first: CallerOf, second: CallerOf, owned: Any) -> None:
    body = {"argv": ["sleep", "300"], "wait": False}
    running = first.ok("POST", f"/v1/sandboxes/{owned['id']}/executions", body)
    for name in (owned["id"], "mine"):
        target = f"/v1/sandboxes/{name}"
        for method, path, sent in (
            ("GET", "", None),
            ("PATCH", "", {"metadata": {"a": "b"}}),
            ("DELETE", "", None),
            ("POST", "/suspend", None),
            ("POST", "/executions", {"argv": ["true"]}),
            ("GET", f"/executions/{running['id']}", None),
            ("GET", f"/executions/{running['id']}/output", None),
            ("GET", f"/executions/{running['id']}/output?follow=true", None),
            ("GET", f"/executions/{running['id']}/events", None),
            ("GET", f"/executions/{running['id']}/attach", None),
            ("POST", f"/executions/{running['id']}/stdin", "x"),
            ("POST", f"/executions/{running['id']}/stdin/close", None),
            ("POST", f"/executions/{running['id']}/resize", {"rows": 1, "cols": 1}),
            ("POST", f"/executions/{running['id']}/kill", None),
        ):
            refused(second.request(method, f"{target}{path}", sent), 404, "SANDBOX_NOT_FOUND")
    assert second.ok("GET", "/v1/sandboxes")["sandboxes"] == []
    assert second.ok("GET", "/v1/executions")["executions"] == []
    target = f"/v1/sandboxes/{owned['id']}"
    assert first.ok("GET", target)["state"] == "ready"
    assert first.ok("GET", f"{target}/executions/{running['id']}")["status"] == "RUNNING"
    assert ids(first.ok("GET", "/v1/executions"), "executions")[-1:] == [running["id"]]


def test_a_hidden_sandbox_answers_as_one_that_is_not_there(second: CallerOf, owned: Any) -> None:
    there = second.request("GET", f"/v1/sandboxes/{owned['id']}").json["error"]
    absent = second.request("GET", "/v1/sandboxes/aaaaaaaaaaaa").json["error"]
    for error, name in ((there, owned["id"]), (absent, "aaaaaaaaaaaa")):
        error["message"] = error["message"].replace(name, "ID")
        error["details"] = str(error["details"]).replace(name, "ID")
        del error["request_id"]
    assert there == absent


def test_a_name_is_unique_for_its_owner_only(daemon: Daemon, second: CallerOf, owned: Any) -> None:
    other = second.ok("POST", "/v1/sandboxes", {"name": "mine"})
    try:
        assert other["id"] != owned["id"]
        assert second.ok("GET", "/v1/sandboxes/mine")["id"] == other["id"]
    finally:
        daemon.release(other["id"])


def test_root_sees_all(daemon: Daemon, owned: Any) -> None:
    assert daemon.ok("GET", f"/v1/sandboxes/{owned['id']}")["owner_uid"] == FIRST_UID
    assert owned["id"] in ids(daemon.ok("GET", "/v1/sandboxes?state=ready"), "sandboxes")
    ran = daemon.execute(owned["id"], ["true"])
    assert ran["id"] in ids(daemon.ok("GET", "/v1/executions?limit=1000"), "executions")


def test_a_command_has_neither_its_caller_s_uid_nor_root_s(daemon: Daemon, owned: Any) -> None:
    assert uid_inside(daemon, owned) not in {0, FIRST_UID, SECOND_UID}


def test_no_header_makes_a_caller_somebody_else(daemon: Daemon, owned: Any) -> None:
    """As far as a test of absence goes: the usual names of such headers."""
    headers = {"X_Remote_User": str(FIRST_UID), "X_Forwarded_User": "root", "Remote_User": "0"}
    answer = daemon.request("POST", "/v1/sandboxes", {}, **headers)
    try:
        assert answer.json["owner_uid"] == 0
    finally:
        daemon.release(answer.json["id"])


def test_healthz_answers_every_caller(second: CallerOf) -> None:
    assert second.ok("GET", "/healthz")["status"] == "ok"
    assert second.ok("GET", "/readyz")["ready"] is True


def test_what_was_released_stays_hidden(daemon: Daemon, first: CallerOf, second: CallerOf) -> None:
    ran = first.ok("POST", "/v1/run", {"argv": ["echo", "secret"]})
    target = f"/v1/sandboxes/{ran['sandbox_id']}"
    assert first.ok("GET", f"{target}/executions/{ran['id']}")["stdout"] == "secret\n"
    for path in ("", f"/executions/{ran['id']}", f"/executions/{ran['id']}/output"):
        refused(second.request("GET", f"{target}{path}"), 404, "SANDBOX_NOT_FOUND")
    refused(second.request("DELETE", target), 404, "SANDBOX_NOT_FOUND")
    released = ids(second.ok("GET", "/v1/sandboxes?state=released"), "sandboxes")
    assert ran["sandbox_id"] not in released
    # The command's uid is not the way in either.
    made = daemon.ok("GET", target)
    assert made["owner_uid"] == FIRST_UID


def test_what_others_have_is_not_told(
    daemon: Daemon, first: CallerOf, second: CallerOf, owned: Any
) -> None:
    target = f"/v1/sandboxes/{owned['id']}/executions"
    running = first.ok("POST", target, {"argv": ["sleep", "60"], "wait": False})
    promised = owned["limits"]["memory_bytes"]
    for asker, executions, committed in ((first, 1, promised), (second, 0, 0)):
        host = asker.ok("GET", "/v1/host")
        capacity = host["capacity"]
        assert (host["executions_running"], capacity["committed_bytes"]) == (executions, committed)
        assert capacity["free_bytes"] == capacity["slots"] * host["limits"]["memory_bytes"]
        told = asker.request("GET", "/metrics").body.decode()
        assert f"sandboxd_memory_committed_bytes {committed}\n" in told
    whole = daemon.ok("GET", "/v1/host")
    assert whole["executions_running"] >= 1
    assert whole["capacity"]["committed_bytes"] >= promised
    first.ok("POST", f"{target}/{running['id']}/kill", {})


def test_no_refusal_tells_what_others_have(daemon: Daemon, second: CallerOf, owned: Any) -> None:
    budget = daemon.ok("GET", "/v1/host")["capacity"]["budget_bytes"]
    body = {"limits": {"memory_bytes": budget}}
    told = refused(second.request("POST", "/v1/sandboxes", body), 503, "CAPACITY_EXCEEDED")
    assert told["details"] == {"budget_bytes": budget, "asked_bytes": budget}
    whole = refused(daemon.request("POST", "/v1/sandboxes", body), 503, "CAPACITY_EXCEEDED")
    assert whole["details"]["committed_bytes"] >= owned["limits"]["memory_bytes"]
