# SPDX-License-Identifier: Apache-2.0
"""Every route's success, its statuses and its answers."""

from __future__ import annotations

import asyncio
import base64
import os
from dataclasses import replace
from typing import Any

import pytest

from sandboxd.api import connection
from sandboxd.api.peer import Peer
from sandboxd.core.policy import Budget
from tests.unit.api.harness import Served, served
from tests.unit.values import LIMITS

TRUE = {"argv": ["true"]}


async def create(server: Served, **fields: Any) -> str:
    answered = await server.ask("POST", "/v1/sandboxes", fields)
    assert answered.status == 201
    identity: str = answered.json["id"]
    return identity


async def test_create_read_list_change_and_release() -> None:
    async with served() as server:
        body = {
            "name": "box", "limits": {"memory_bytes": "256M", "cpus": "150%"},
            "env": {"A": "1"}, "metadata": {"job": "7"}, "timeout_seconds": "1h",
        }  # fmt: skip
        created = (await server.ask("POST", "/v1/sandboxes", body)).json
        assert created["limits"]["memory_bytes"] == 256 << 20
        assert created["limits"]["cpus"] == 1.5
        assert created["created_at"] == "2026-01-02T03:20:45Z"
        assert created["enforcement"]["memory_bytes"] == {
            "by": "kernel",
            "detail": "memory.max",
            "precision": None,
        }
        assert "uid" not in created
        path = f"/v1/sandboxes/{created['id']}"
        assert (await server.ask("GET", path)).json == created
        assert (await server.ask("GET", "/v1/sandboxes/box")).json == created
        listed = (await server.ask("GET", "/v1/sandboxes?state=ready&name=box")).json
        assert listed == {"sandboxes": [created], "next_cursor": None}
        assert (await server.ask("GET", "/v1/sandboxes?state=suspended")).json["sandboxes"] == []
        change = {"limits": {"pids": 7}, "metadata": {}, "force": True}
        changed = (await server.ask("PATCH", path, change)).json
        assert (changed["limits"]["pids"], changed["metadata"]) == (7, {})
        assert (await server.ask("POST", f"{path}/suspend")).json["state"] == "suspended"
        assert (await server.ask("POST", f"{path}/resume")).json["state"] == "ready"
        for _ in range(2):
            released = await server.ask("DELETE", path)
            assert (released.status, released.body) == (204, b"")


async def test_lists_filter_by_metadata() -> None:
    async with served() as server:
        blue = await create(server, metadata={"team": "blue", "job": "1"})
        await create(server, metadata={"team": "red", "job": "1"})
        for query, count in (
            ("metadata.team=blue&metadata.job=1", 1),
            ("metadata.job=1", 2),
            ("metadata.job=2", 0),
            ("metadata.none=", 0),
        ):
            found = (await server.ask("GET", f"/v1/sandboxes?{query}")).json["sandboxes"]
            assert len(found) == count, query
            assert count != 1 or found[0]["id"] == blue
        for query in ("metadata=blue", "metadata.=a", "metadata.a%20b=c"):
            assert (await server.ask("GET", f"/v1/sandboxes?{query}")).status == 400


async def test_an_execution_waited_for_is_200_and_finished() -> None:
    async with served() as server:
        path = f"/v1/sandboxes/{await create(server)}/executions"
        answered = await server.ask("POST", path, {"command": "echo out", "timeout_seconds": 3})
        execution = answered.json
        assert answered.status == 200
        assert (execution["status"], execution["exit_code"]) == ("EXITED", 0)
        assert execution["argv"] == ["/bin/sh", "-c", "echo out"]
        assert (execution["stdout"], execution["stdout_bytes"]) == ("out\n", 4)
        assert execution["limits"]["timeout_seconds"] == 3
        assert execution["usage"]["wall_seconds"] == 1.0
        assert execution["usage"]["memory_peak_bytes"] is None
        assert "stdout_base64" not in execution
        listed = (await server.ask("GET", path)).json["executions"]
        assert [(entry["id"], entry["stdout"]) for entry in listed] == [(execution["id"], None)]
        assert listed[0]["stdout_inline_truncated"]
        assert (await server.ask("GET", "/v1/executions")).json["executions"] == listed
        assert (await server.ask("GET", "/v1/executions?status=LOST")).json["executions"] == []


async def test_an_execution_not_waited_for_is_201_and_can_be_waited_for_and_killed() -> None:
    async with served() as server:
        server.commands(seconds=None)
        path = f"/v1/sandboxes/{await create(server)}/executions"
        answered = await server.ask("POST", path, {**TRUE, "wait": False})
        assert (answered.status, answered.json["status"]) == (201, "RUNNING")
        path = f"{path}/{answered.json['id']}"
        for query in ("", "?wait=0", "?wait=0.01"):
            assert (await server.ask("GET", path + query)).json["status"] == "RUNNING"
        waiting = asyncio.ensure_future(server.ask("GET", f"{path}?wait=60s"))
        server.end()
        assert (await waiting).json["status"] == "EXITED"
        refused = await server.ask("POST", f"{path}/kill")
        assert (refused.status, refused.error["code"]) == (409, "EXECUTION_FINISHED")


async def test_kill_passes_signal_and_grace() -> None:
    async with served() as server:
        server.commands(seconds=None)
        path = f"/v1/sandboxes/{await create(server)}/executions"
        started = await server.ask("POST", path, {**TRUE, "wait": False})
        path = f"{path}/{started.json['id']}/kill"
        assert (await server.ask("POST", path, {"signal": "SIGUSR1"})).json["status"] == "RUNNING"
        assert (await server.ask("POST", path, {"grace_seconds": 2})).json["status"] == "KILLED"
        [shim] = server.shims
        assert shim.orders == ["signal 10", "kill KILLED_BY_CALLER 2"]


async def test_run_gives_limits_to_the_sandbox_where_it_has_them() -> None:
    async with served() as server:
        body = {
            **TRUE, "limits": {"memory_bytes": 1 << 26, "open_files": 9}, "timeout_seconds": 5,
            "env": {"A": "b"}, "require": ["pids"], "require_by": "kernel",
        }  # fmt: skip
        answered = await server.ask("POST", "/v1/run", body)
        assert answered.status == 200
        [shim] = server.shims
        sandbox, execution = shim.request.sandbox, shim.request.execution
        assert sandbox.limits == replace(LIMITS, memory_bytes=1 << 26)
        assert execution.limits == replace(sandbox.limits, open_files=9, timeout_seconds=5.0)
        assert execution.own_limits == {"open_files", "timeout_seconds"}
        assert "A" not in sandbox.env
        assert shim.request.env["A"] == "b"
        assert (await server.ask("POST", "/v1/run", {**TRUE, "wait": False})).status == 201


async def test_output_is_byte_exact_from_any_offset() -> None:
    async with served() as server:
        data = bytes(range(256)) * 8192
        server.commands(data)
        execution = (await server.ask("POST", "/v1/run", TRUE)).json
        assert base64.b64decode(execution["stdout_base64"]) == data[: 1 << 20]
        assert execution["stdout_inline_truncated"]
        assert execution["stdout_bytes"] == len(data)
        path = f"/v1/sandboxes/{execution['sandbox_id']}/executions/{execution['id']}/output"
        for offset in (0, 1 << 20, len(data) - 1, len(data)):
            answered = await server.ask("GET", f"{path}?stream=stdout&offset={offset}")
            assert (answered.status, answered.body) == (200, data[offset:])
        beyond = await server.ask("GET", f"{path}?offset={len(data) + 1}")
        assert (beyond.status, beyond.error["code"]) == (416, "RANGE_NOT_SATISFIABLE")
        assert (await server.ask("GET", f"{path}?stream=stderr")).body == b""


async def test_pages_hold_while_entries_go() -> None:
    async with served() as server:
        ids = []
        for _ in range(5):
            ids.append(await create(server))
            server.world.seconds += 1
        page = (await server.ask("GET", "/v1/sandboxes?limit=2")).json
        seen = [sandbox["id"] for sandbox in page["sandboxes"]]
        await server.ask("DELETE", f"/v1/sandboxes/{ids[1]}")
        # Past the time for which records are kept.
        server.world.seconds += 3601
        await server.world.until(lambda: ids[1] not in server.world.saved_sandboxes)
        while page["next_cursor"]:
            path = f"/v1/sandboxes?limit=2&cursor={page['next_cursor']}"
            page = (await server.ask("GET", path)).json
            seen += [sandbox["id"] for sandbox in page["sandboxes"]]
        assert seen == ids


async def test_host_health_and_readiness() -> None:
    budget = Budget((8 << 30) + (1 << 28), 1 << 28)
    async with served(budget=budget) as server:
        await create(server)
        host = (await server.ask("GET", "/v1/host")).json
        assert host["capacity"] == {
            "budget_bytes": 8 << 30, "reserve_bytes": 1 << 28, "committed_bytes": 1 << 30,
            "free_bytes": 7 << 30, "slots": 7, "tasks": 28672, "tasks_source": "kernel.pid_max",
        }  # fmt: skip
        assert host["isolation"]["levels"]["basic"]["available"] is True
        control = (await server.ask("GET", "/healthz")).json["resource_control"]
        assert control["cgroup"] == {"mode": "auto", "version": "v2", "detail": "delegated"}
        assert control["sandbox_memory_quota"] is True
        assert control["sandbox_disk_quota"] is True
        assert control["sandbox_io_quota"] is False
        assert (await server.ask("GET", "/readyz")).json == {"ready": True}
        server.engine.is_ready = False
        answered = await server.ask("GET", "/readyz")
        assert (answered.status, answered.error["code"]) == (503, "DRAINING")
        assert (await server.ask("GET", "/healthz")).json["ready"] is False


async def test_a_full_host_says_so_with_the_figures() -> None:
    async with served() as server:
        await server.fill()
        answered = await server.ask("POST", "/v1/run", TRUE)
        assert (answered.status, answered.error["code"]) == (503, "CAPACITY_EXCEEDED")
        assert answered.error["retryable"] is True
        assert answered.error["details"]["asked_bytes"] == 1 << 30
        assert int(answered.headers["retry-after"]) > 0


@pytest.mark.parametrize("key", [None, "once"])
@pytest.mark.parametrize(
    ("uid", "groups", "is_told"),
    [(0, (), True), (54321, (7,), True), (54321, (), False), (os.geteuid(), (), True)],
)
async def test_what_others_have_is_told_by_no_error(
    monkeypatch: pytest.MonkeyPatch,
    uid: int,
    groups: tuple[int, ...],
    is_told: bool,
    key: str | None,
) -> None:
    monkeypatch.setattr(connection, "read_peer", lambda _: Peer(1, uid, 1, frozenset(groups)))
    async with served(admin_gids={7}) as server:
        await server.fill()
        headers = {} if key is None else {"Idempotency-Key": key}
        answered = await server.ask("POST", "/v1/run", TRUE, headers=headers)
        assert answered.error["code"] == "CAPACITY_EXCEEDED"
        assert ("committed_bytes" in answered.error["details"]) is is_told


async def test_an_outcome_is_told_whole() -> None:
    async with served() as server:
        server.commands(seconds=None)
        started = (await server.ask("POST", "/v1/run", {**TRUE, "wait": False})).json
        server.world.shims[started["id"]].finish(wait_status=9)
        path = f"/v1/sandboxes/{started['sandbox_id']}/executions/{started['id']}"
        ended = (await server.ask("GET", f"{path}?wait=10")).json
        assert (ended["status"], ended["signal"], ended["exit_code"]) == ("SIGNALED", 9, None)
        assert ended["finished_at"].endswith("Z")
