# SPDX-License-Identifier: Apache-2.0
"""Two callers with different uids never learn of each other: not by name, cursor, key, event,
metric or list."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.caller import FIRST_UID, SECOND_UID, CallerOf
from tests.contract.probes import refused
from tests.harness import ROOT, Daemon

pytestmark = pytest.mark.usefixtures("requires_root")
_FOLLOW = """
import os, socket, sys
uid, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
connection.sendall(b"GET /v1/events HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
seen = b""
while seen.count(b"event: ") < count:
    data = connection.recv(65536)
    if not data:
        break
    seen += data
    if b": sandboxd" in data:
        print("ready", flush=True)
sys.stdout.write(seen.decode())
"""


@contextmanager
def following(daemon: Daemon, uid: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process of `uid` that prints the first `count` events it gets."""
    command = [sys.executable, "-c", _FOLLOW, str(uid), daemon.socket, str(count)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def events_of(text: str) -> list[Any]:
    lines = [line for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_events_are_of_one_s_own_only(daemon: Daemon, first: CallerOf, second: CallerOf) -> None:
    name = f"n{uuid.uuid4().hex[:8]}"
    with following(daemon, FIRST_UID, 3) as mine, following(daemon, SECOND_UID, 3) as theirs:
        made = [who.ok("POST", "/v1/sandboxes", {"name": name}) for who in (first, second)]
        for who, sandbox in zip((first, second), made, strict=True):
            who.request("DELETE", f"/v1/sandboxes/{sandbox['id']}")
        told = [process.communicate(timeout=60)[0] for process in (mine, theirs)]
    for text, sandbox, uid in zip(told, made, (FIRST_UID, SECOND_UID), strict=True):
        found = events_of(text)
        assert [one["type"] for one in found] == [
            "sandbox.created", "sandbox.releasing", "sandbox.released",
        ]  # fmt: skip
        assert {one["sandbox_id"] for one in found} == {sandbox["id"]}
        assert {one["owner_uid"] for one in found} == {uid}
        # Nor do numbers tell: there is no gap where the other one's events came.
        ids = [line.rpartition("-")[2] for line in text.splitlines() if line.startswith("id: ")]
        assert [int(number) - int(ids[0]) for number in ids] == [0, 1, 2]


def test_a_key_is_one_caller_s(first: CallerOf, second: CallerOf, daemon: Daemon) -> None:
    key = uuid.uuid4().hex
    made = []
    for who in (first, second):
        answer = who.request("POST", "/v1/sandboxes", {"metadata": {"a": key}}, key=key)
        assert answer.status == 201, answer.body
        assert "Idempotency-Replayed" not in answer.headers
        made.append(answer.json)
    # The same key with something else is no secret of the other one's either.
    other = daemon.request("POST", "/v1/run", {"argv": ["true"]}, Idempotency_Key=key)
    assert other.status == 200
    assert [one["owner_uid"] for one in made] == [FIRST_UID, SECOND_UID]
    for one in made:
        daemon.release(one["id"])


def test_a_cursor_opens_nothing(first: CallerOf, second: CallerOf, daemon: Daemon) -> None:
    made = [first.ok("POST", "/v1/sandboxes", {"limits": {"memory_bytes": "8M"}}) for _ in "ab"]
    page = first.ok("GET", "/v1/sandboxes?state=ready&limit=1")
    assert page["next_cursor"]
    target = f"/v1/sandboxes?limit=10&cursor={page['next_cursor']}"
    assert second.ok("GET", f"{target}&state=ready")["sandboxes"] == []
    for one in made:
        daemon.release(one["id"])


def test_metrics_are_of_one_s_own_only(first: CallerOf, second: CallerOf, daemon: Daemon) -> None:
    before = second.request("GET", "/metrics").body.decode()
    made = first.ok("POST", "/v1/sandboxes", {"name": "metered"})
    for ref in (made["id"], "metered"):
        target = f"/v1/sandboxes/{ref}/metrics"
        refused(second.request("GET", target), 404, "SANDBOX_NOT_FOUND")
        assert first.ok("GET", target)["sandbox_id"] == made["id"]
    after = second.request("GET", "/metrics").body.decode()

    def own(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("sandboxd_sandboxes{")]

    assert own(before) == own(after)
    assert "_total" not in after
    daemon.release(made["id"])


def test_someone_else_s_name_is_free(first: CallerOf, second: CallerOf, daemon: Daemon) -> None:
    made = first.ok("POST", "/v1/sandboxes", {"name": "shared-name"})
    refused(second.request("DELETE", "/v1/sandboxes/shared-name"), 404, "SANDBOX_NOT_FOUND")
    assert second.ok("GET", "/v1/sandboxes?name=shared-name")["sandboxes"] == []
    theirs = second.ok("POST", "/v1/sandboxes", {"name": "shared-name"})
    # An admin has names of its own, and sees the others by id.
    refused(daemon.request("GET", "/v1/sandboxes/shared-name"), 404, "SANDBOX_NOT_FOUND")
    for one in (made, theirs):
        daemon.release(one["id"])
