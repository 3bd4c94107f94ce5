# SPDX-License-Identifier: Apache-2.0
"""Idempotency-Key with real executions: a retry never runs anything a second time."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from tests.contract.probes import executions, refused, send_and_leave
from tests.harness import Answer, Daemon


def post(daemon: Daemon, target: str, body: Any, key: str) -> Answer:
    return daemon.request("POST", target, body, Idempotency_Key=key)


def test_a_run_whose_client_left_is_run_once(daemon: Daemon, sandbox: Any) -> None:
    key = uuid.uuid4().hex
    body = {"command": "echo x >> runs; sleep 1; wc -l < runs"}
    send_and_leave(
        daemon, executions(sandbox), body, key,
        lambda: daemon.ok("GET", executions(sandbox))["executions"],
    )  # fmt: skip
    answers = [post(daemon, executions(sandbox), body, key) for _ in range(2)]
    for answer in answers:
        assert answer.json["stdout"] == "1\n"
        assert answer.headers["Idempotency-Replayed"] == "true"
    assert answers[0].body == answers[1].body
    assert len(daemon.ok("GET", executions(sandbox))["executions"]) == 1


def test_many_senders_of_one_key_get_one_execution(daemon: Daemon, sandbox: Any) -> None:
    key = uuid.uuid4().hex
    answers: list[Answer] = []

    def send() -> None:
        answers.append(post(daemon, executions(sandbox), {"argv": ["sleep", "0.3"]}, key))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200] * 8
    assert len({answer.json["id"] for answer in answers}) == 1
    assert len(daemon.ok("GET", executions(sandbox))["executions"]) == 1


def test_a_sandbox_is_created_once(daemon: Daemon) -> None:
    key = uuid.uuid4().hex
    first = post(daemon, "/v1/sandboxes", {"metadata": {"a": "b"}}, key)
    try:
        assert post(daemon, "/v1/sandboxes", {"metadata": {"a": "b"}}, key).body == first.body
        answer = post(daemon, "/v1/sandboxes", {"metadata": {"a": "c"}}, key)
        refused(answer, 409, "IDEMPOTENCY_KEY_REUSED")
    finally:
        daemon.release(first.json["id"])
    # The first answer, though the sandbox is gone.
    again = post(daemon, "/v1/sandboxes", {"metadata": {"a": "b"}}, key)
    assert (again.status, again.json["state"]) == (201, "ready")
