# SPDX-License-Identifier: Apache-2.0
"""Lists: what is in them, their filters, and pages that lose nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import executions, refused
from tests.harness import Daemon


def pages(daemon: Daemon, target: str, name: str) -> list[Any]:
    """All entries of a list, read seven at a time."""
    found: list[Any] = []
    joint = "&" if "?" in target else "?"
    cursor = ""
    for _ in range(1000):
        page = daemon.ok("GET", f"{target}{joint}limit=7{cursor}")
        assert len(page[name]) <= 7
        found += page[name]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"
    raise AssertionError("a list without an end")


def test_sandboxes_are_listed_by_name_and_state(daemon: Daemon, create: Create) -> None:
    one, two = create(name="list-one"), create(name="list-two")
    daemon.ok("POST", f"/v1/sandboxes/{two['id']}/suspend")
    named = daemon.ok("GET", "/v1/sandboxes?name=list-one")["sandboxes"]
    assert [entry["id"] for entry in named] == [one["id"]]
    suspended = daemon.ok("GET", "/v1/sandboxes?state=suspended")["sandboxes"]
    assert [entry["id"] for entry in suspended] == [two["id"]]
    assert suspended[0]["state"] == "suspended"


def test_pages_hold_every_sandbox_once(daemon: Daemon, create: Create) -> None:
    made = {create()["id"] for _ in range(5)}
    listed = [entry["id"] for entry in pages(daemon, "/v1/sandboxes?state=ready", "sandboxes")]
    assert len(listed) == len(set(listed))
    assert made <= set(listed)


def test_pages_hold_every_execution_once_and_without_output(daemon: Daemon, sandbox: Any) -> None:
    ran = [daemon.execute(sandbox["id"], ["echo", "some output"])["id"] for _ in range(5)]
    listed = pages(daemon, executions(sandbox), "executions")
    assert [entry["id"] for entry in listed] == ran
    assert "some output" not in str(listed[0].get("stdout"))
    assert listed[0]["stdout_bytes"] == len("some output\n")


def test_all_executions_of_the_caller_are_listed(daemon: Daemon, create: Create) -> None:
    made = [create(), create()]
    ran = {daemon.execute(one["id"], ["true"])["id"] for one in made}
    listed = pages(daemon, "/v1/executions", "executions")
    assert ran <= {entry["id"] for entry in listed}


def test_executions_are_listed_by_status(daemon: Daemon, sandbox: Any) -> None:
    done = daemon.execute(sandbox["id"], ["true"])
    running = daemon.execute(sandbox["id"], ["sleep", "300"], wait=False)
    for status, expected in (("RUNNING", running), ("EXITED", done)):
        listed = daemon.ok("GET", f"{executions(sandbox)}?status={status}")["executions"]
        assert [entry["id"] for entry in listed] == [expected["id"]]


def test_sandboxes_are_listed_by_metadata(daemon: Daemon, create: Create) -> None:
    made = create(metadata={"team": "blue"})
    create(metadata={"team": "red"})
    listed = daemon.ok("GET", "/v1/sandboxes?metadata.team=blue")["sandboxes"]
    assert [entry["id"] for entry in listed] == [made["id"]]


def test_executions_are_listed_by_their_sandbox(daemon: Daemon, create: Create) -> None:
    ran = {}
    for name, team in (("by-one", "blue"), ("by-two", "green")):
        made = create(name=name, metadata={"team": team, "kind": "by"})
        ran[name] = daemon.execute(made["id"], ["true"])["id"]
    for query, names in (
        ("name=by-one", ["by-one"]),
        ("metadata.team=green", ["by-two"]),
        ("metadata.kind=by", ["by-one", "by-two"]),
        ("metadata.kind=by&name=by-two&status=EXITED", ["by-two"]),
        ("metadata.kind=by&metadata.team=red", []),
        ("name=by-one&status=RUNNING", []),
    ):
        listed = pages(daemon, f"/v1/executions?{query}", "executions")
        assert [entry["id"] for entry in listed] == [ran[name] for name in names], query


def test_executions_are_listed_by_their_end(daemon: Daemon, sandbox: Any) -> None:
    first, second = (daemon.execute(sandbox["id"], ["true"]) for _ in range(2))
    daemon.execute(sandbox["id"], ["sleep", "300"], wait=False)
    for after, expected in (
        ("2026-01-01T00:00:00Z", [first, second]),
        (first["finished_at"], [second]),
        (second["finished_at"], []),
        ("2026-01-01T00:00:00%2B01:00", [first, second]),
    ):
        listed = pages(daemon, f"{executions(sandbox)}?ended_after={after}", "executions")
        assert [entry["id"] for entry in listed] == [one["id"] for one in expected], after
    for bad in ("", "now", "12", "2026-01-01T00:00:00", "2026-01-01", "1e999"):
        refused(daemon.request("GET", f"/v1/executions?ended_after={bad}"), 400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=x", "limit=", "limit=99999999999999999999", "state=running",
     "name=UPPER", "nosuch=1", "cursor=%00", "cursor=nonsense!", "limit=2&limit=3"],
)  # fmt: skip
def test_a_bad_query_is_refused(daemon: Daemon, query: str) -> None:
    error = refused(daemon.request("GET", f"/v1/sandboxes?{query}"), 400, "INVALID_REQUEST")
    assert error["details"]["fields"]
