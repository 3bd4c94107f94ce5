# SPDX-License-Identifier: Apache-2.0
"""The life of a sandbox: made, read, named, released, read again."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import executions, refused
from tests.harness import Daemon

FIELDS = {"id", "name", "state", "isolation", "network", "scheme", "limits", "enforcement", "env",
          "metadata", "owner_uid", "unit", "created_at", "expires_at", "last_used_at"}  # fmt: skip
ID = re.compile(r"[a-z2-7]{12}")


def get(daemon: Daemon, name: str) -> Any:
    return daemon.ok("GET", f"/v1/sandboxes/{name}")


def test_a_new_sandbox_is_ready_and_says_what_it_is(
    daemon: Daemon, create: Create, scheme: str
) -> None:
    answer = daemon.request("POST", "/v1/sandboxes", {"metadata": {"job": "7"}, "env": {"A": "b"}})
    assert answer.status == 201
    made = answer.json
    try:
        assert set(made) >= FIELDS
        assert ID.fullmatch(made["id"])
        assert (made["state"], made["scheme"], made["name"]) == ("ready", scheme, None)
        assert (made["metadata"], made["env"]) == ({"job": "7"}, {"A": "b"})
        assert (made["unit"] is not None) == (scheme == "systemd")
        assert made["expires_at"] is None
        assert get(daemon, made["id"]) == made
    finally:
        daemon.release(made["id"])


def test_times_are_utc_and_now(sandbox: Any) -> None:
    assert sandbox["created_at"].endswith("Z")
    created = datetime.fromisoformat(sandbox["created_at"])
    assert abs(datetime.now(UTC) - created) < timedelta(seconds=30)


def test_every_limit_has_a_number_and_says_who_holds_it(sandbox: Any) -> None:
    assert set(sandbox["enforcement"]) == set(sandbox["limits"])
    for held in sandbox["enforcement"].values():
        assert held["by"] in {"kernel", "supervisor", "none"}
        assert held["detail"]
        assert (held["precision"] is not None) == (held["by"] == "supervisor")
    texts = [value for value in sandbox["limits"].values() if isinstance(value, str | bool)]
    assert not texts


def test_a_name_stands_for_the_id_until_release(daemon: Daemon) -> None:
    first = daemon.create(name="named-one")
    try:
        assert get(daemon, "named-one")["id"] == first["id"]
        assert daemon.execute("named-one", ["true"])["sandbox_id"] == first["id"]
        taken = daemon.request("POST", "/v1/sandboxes", {"name": "named-one"})
        refused(taken, 409, "NAME_IN_USE")
    finally:
        daemon.release("named-one")
    second = daemon.create(name="named-one")
    daemon.release(second["id"])
    assert second["id"] != first["id"]


@pytest.mark.parametrize("name", ["", "1a", "-a", "A", "a_b", "a" * 64, "a.b", "ä", "abcdefghijkl"])
def test_a_bad_name_is_refused(daemon: Daemon, name: str) -> None:
    error = refused(daemon.request("POST", "/v1/sandboxes", {"name": name}), 400, "INVALID_REQUEST")
    assert [field["path"] for field in error["details"]["fields"]] == ["name"]
    assert error["details"]["fields"][0]["reason"]


@pytest.mark.parametrize("name", ["a", "a-", "b" * 63, "a1234567890", "abcdefghij-1"])
def test_a_good_name_is_taken(create: Create, name: str) -> None:
    assert create(name=name)["name"] == name


def test_release_is_the_same_the_second_time(daemon: Daemon) -> None:
    made = daemon.create()
    for _ in range(2):
        answer = daemon.request("DELETE", f"/v1/sandboxes/{made['id']}")
        assert (answer.status, answer.body) == (204, b"")


def test_a_released_sandbox_stays_readable_with_its_executions(daemon: Daemon) -> None:
    made = daemon.create(name="gone-soon")
    ran = daemon.execute(made["id"], ["echo", "kept"])
    daemon.release(made["id"])
    assert get(daemon, made["id"])["state"] == "released"
    assert daemon.ok("GET", f"{executions(made)}/{ran['id']}")["stdout"] == "kept\n"
    assert daemon.request("GET", f"{executions(made)}/{ran['id']}/output").body == b"kept\n"
    assert [one["id"] for one in daemon.ok("GET", executions(made))["executions"]] == [ran["id"]]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/executions", {"argv": ["true"]}),
        ("POST", "/suspend", None),
        ("POST", "/resume", None),
        ("PATCH", "", {"metadata": {"a": "b"}}),
    ],
)
def test_other_verbs_on_a_released_sandbox_conflict(
    daemon: Daemon, method: str, path: str, body: Any
) -> None:
    made = daemon.create()
    daemon.release(made["id"])
    answer = daemon.request(method, f"/v1/sandboxes/{made['id']}{path}", body)
    refused(answer, 409, "SANDBOX_RELEASED")


def test_metadata_changes_live(daemon: Daemon, create: Create) -> None:
    made = create(metadata={"a": "1"})
    changed = daemon.ok("PATCH", f"/v1/sandboxes/{made['id']}", {"metadata": {"b": "2"}})
    assert changed["metadata"].get("b") == "2"
    assert get(daemon, made["id"])["metadata"] == changed["metadata"]


def test_life_ends_by_its_own_timeout(daemon: Daemon) -> None:
    made = daemon.create(timeout_seconds=3600)
    try:
        left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
        assert timedelta(seconds=3500) < left <= timedelta(seconds=3601)
        changed = daemon.ok("PATCH", f"/v1/sandboxes/{made['id']}", {"timeout_seconds": "2h"})
        left = datetime.fromisoformat(changed["expires_at"]) - datetime.now(UTC)
        assert timedelta(seconds=7100) < left <= timedelta(seconds=7201)
    finally:
        daemon.release(made["id"])
