# SPDX-License-Identifier: Apache-2.0
"""Quotas per caller, as configured."""

from __future__ import annotations

import pytest

from tests.contract.caller import FIRST_UID, SECOND_UID, caller
from tests.fixtures import daemon_fixture
from tests.harness import Answer, Daemon

MIB = 1 << 20
daemon = daemon_fixture(
    is_open_to_all=True,
    SANDBOX_MEMORY_LIMIT_BYTES="64M",
    SANDBOX_MAX_SANDBOXES_PER_CALLER="3",
    SANDBOX_MAX_MEMORY_BYTES_PER_CALLER="160M",
    SANDBOX_MAX_EXECUTIONS_PER_CALLER="2",
)


def refusal(answer: Answer) -> tuple[object, ...]:
    assert (answer.status, answer.code) == (429, "CALLER_QUOTA_EXCEEDED")
    details = answer.json["error"]["details"]
    assert answer.json["error"]["retryable"] is True
    return details["quota"], details["maximum"], details["used"], details["asked"]


@pytest.mark.usefixtures("requires_root")
def test_each_caller_has_a_share_of_its_own(daemon: Daemon) -> None:
    with caller(daemon, FIRST_UID) as first, caller(daemon, SECOND_UID) as second:
        made = [first.ok("POST", "/v1/sandboxes", {}) for _ in range(2)]
        answer = first.request("POST", "/v1/sandboxes", {})
        assert refusal(answer) == ("memory_bytes", 160 * MIB, 128 * MIB, 64 * MIB)
        small = {"limits": {"memory_bytes": "16M"}}
        made.append(first.ok("POST", "/v1/sandboxes", small))
        answer = first.request("POST", "/v1/sandboxes", small)
        assert refusal(answer) == ("sandboxes", 3, 3, 1)
        grown = {"limits": {"memory_bytes": "64M"}}
        answer = first.request("PATCH", f"/v1/sandboxes/{made[2]['id']}", grown)
        assert refusal(answer) == ("memory_bytes", 160 * MIB, 144 * MIB, 48 * MIB)
        theirs = second.ok("POST", "/v1/sandboxes", {})
        for one in (*made, theirs):
            daemon.release(one["id"])


def test_executions_at_once_are_bounded(daemon: Daemon) -> None:
    sandbox = daemon.create()["id"]
    target = f"/v1/sandboxes/{sandbox}/executions"
    body = {"argv": ["sleep", "300"], "wait": False}
    running = [daemon.ok("POST", target, body) for _ in range(2)]
    assert refusal(daemon.request("POST", target, body)) == ("executions", 2, 2, 1)
    assert refusal(daemon.request("POST", "/v1/run", body))[0] == "executions"
    assert len(daemon.ok("GET", "/v1/sandboxes?state=ready")["sandboxes"]) == 1
    daemon.ok("POST", f"{target}/{running[0]['id']}/kill")
    assert daemon.execute(sandbox, ["true"])["exit_code"] == 0
    daemon.release(sandbox)
