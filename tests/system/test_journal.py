# SPDX-License-Identifier: Apache-2.0
"""What the journal tells: by sandbox, by request, and in the unit's own view."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness import Daemon

SECRET = "not-for-the-journal"


@pytest.fixture(scope="module")
def daemon(requires_systemd: None) -> Iterator[Daemon]:
    """A daemon whose stderr is the journal."""
    made = Daemon(
        SANDBOX_CGROUP_MODE="required", SANDBOX_MEMORY_LIMIT_BYTES="64M", SANDBOX_LOG_LEVEL="debug"
    )
    with made.running(prefix=("systemd-cat", "--identifier=sandboxd-test")) as running:
        yield running


def entries(*arguments: str) -> list[dict[str, Any]]:
    text = subprocess.run(
        ["journalctl", "--output=json", "--no-pager", *arguments],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return [json.loads(line) for line in text.splitlines()]


def await_entries(
    wanted: Callable[[list[dict[str, Any]]], bool], *arguments: str
) -> list[dict[str, Any]]:
    """journald writes in its own time."""
    deadline = time.monotonic() + 20
    while not wanted(found := entries(*arguments)):
        assert time.monotonic() < deadline, found
        subprocess.run(["journalctl", "--sync"], check=True)
    return found


def test_a_life_is_found_by_sandbox_and_by_unit(daemon: Daemon) -> None:
    sandbox = daemon.create(name="audited")
    answer = daemon.request(
        "POST", f"/v1/sandboxes/{sandbox['id']}/executions",
        {"command": f"echo {SECRET}; tail /dev/zero"},
    )  # fmt: skip
    execution = answer.json
    assert execution["status"] == "OOM_KILLED"
    daemon.release(sandbox["id"])

    found = await_entries(
        lambda all_: any(entry.get("EVENT") == "sandbox.released" for entry in all_),
        f"SANDBOX_ID={sandbox['id']}",
    )
    events = [entry["EVENT"] for entry in found if "EVENT" in entry]
    assert events == [
        "sandbox.created", "execution.started", "execution.ended", "sandbox.releasing",
        "sandbox.released",
    ]  # fmt: skip
    assert {entry["_UID"] for entry in found} == {"0"}
    created, started, ended = found[0], found[1], found[2]
    for entry in (created, started):
        assert (entry["CALLER_UID"], entry["SYSLOG_IDENTIFIER"]) == ("0", "sandboxd")
        assert "asked by uid 0, pid " in entry["MESSAGE"]
    assert started["EXECUTION_ID"] == execution["id"]
    assert (ended["VERDICT"], ended["ERROR_CODE"], ended["PRIORITY"]) == (
        "OOM_KILLED", "SANDBOX_MEMORY_LIMIT_EXCEEDED", "6",
    )  # fmt: skip
    assert SECRET not in json.dumps(found)

    request_id = answer.headers["X-Request-Id"]
    by_request = entries(f"REQUEST_ID={request_id}")
    assert {"execution.started", "execution.ended"} <= {e.get("EVENT") for e in by_request}
    # systemctl status UNIT shows the same entries as journalctl -u.
    for unit, at_least in (
        (execution["unit"], {"execution.started", "execution.ended"}),
        (sandbox["unit"], set(events)),
    ):
        told = {entry.get("EVENT") for entry in entries("-u", unit)}
        assert at_least <= told, unit


def test_a_refused_request_is_found_by_its_id(daemon: Daemon) -> None:
    answer = daemon.request("POST", "/v1/sandboxes", {"nosuch": SECRET})
    request_id = answer.headers["X-Request-Id"]
    [entry] = await_entries(bool, f"REQUEST_ID={request_id}")
    assert (entry["HTTP_STATUS"], entry["CALLER_UID"]) == ("400", "0")
    assert SECRET not in json.dumps(entry)
