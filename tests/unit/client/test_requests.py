# SPDX-License-Identifier: Apache-2.0
"""How many requests a command costs, and that none is left running by one that was broken off."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sandboxd.api.server import Api
from sandboxd.client import AsyncSandbox, Sandbox
from sandboxd.client.calls import Client, Flows
from sandboxd.client.exit_status import exit_status
from sandboxd.client.refusals import refusal
from sandboxd.client.request import Patience
from sandboxd.core.model import ExecutionStatus
from sandboxd.errors import CapacityExceeded
from tests.unit.api.harness import Served, served
from tests.unit.client.test_transport import form, listening
from tests.unit.ctl.test_commands import ctl

Asked = list[str]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The requests that a `served()` answers, as they come."""
    seen: Asked = []
    handle = Api.handle

    async def counting(self: Api, request: web.BaseRequest) -> web.StreamResponse:
        seen.append(f"{request.method} {request.rel_url.raw_path}")
        return await handle(self, request)

    monkeypatch.setattr(Api, "handle", counting)
    return seen


async def test_a_short_run_of_sandboxctl_is_one_request(asked: Asked) -> None:
    async with served() as server:
        ended = await ctl(server, "run", "--", "prog")
        assert (ended.code, ended.stdout) == (0, b"out\n")
        assert asked == ["POST /v1/run"]


async def test_a_short_exec_of_sandboxctl_is_one_request(asked: Asked) -> None:
    async with served() as server:
        box = (await server.ask("POST", "/v1/sandboxes", {"name": "box"})).json["id"]
        asked.clear()
        assert (await ctl(server, "exec", "box", "-o", "json", "--", "prog")).code == 0
        assert asked == ["POST /v1/sandboxes/box/executions"]
        assert box


async def test_a_long_run_is_asked_for_again_once(asked: Asked) -> None:
    async with served() as server:
        server.commands(seconds=None)
        running = asyncio.create_task(ctl(server, "run", "-o", "json", "--", "prog"))
        async with asyncio.timeout(30):
            await finish_after_first_answer(server, asked)
            assert (await running).code == 0
        assert [one.partition(" ")[0] for one in asked] == ["POST", "GET"]


async def finish_after_first_answer(server: Served, asked: Asked) -> None:
    """Let the execution end once its second request is there."""
    await server.started()
    while len(asked) < 2:  # noqa: ASYNC110 - no event tells of a request
        await asyncio.sleep(0.01)
    server.end()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_short_run_of_the_client_is_one_request(asked: Asked, is_async: bool) -> None:
    async with served() as server:
        if is_async:
            box = await AsyncSandbox.create(socket=server.path)
            asked.clear()
            result = await box.run("prog")
        else:
            plain = await asyncio.to_thread(Sandbox.create, socket=server.path)
            asked.clear()
            result = await asyncio.to_thread(plain.run, "prog")
        assert result.stdout == "out\n"
        assert len(asked) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_long_run_of_the_client_is_two_requests(asked: Asked, is_async: bool) -> None:
    async with served() as server:
        server.commands(seconds=None)
        box = await AsyncSandbox.create(socket=server.path)
        plain = await asyncio.to_thread(Sandbox.connect, box.id, socket=server.path)
        asked.clear()
        work = box.run("prog") if is_async else asyncio.to_thread(plain.run, "prog")
        running = asyncio.ensure_future(work)
        async with asyncio.timeout(30):
            await finish_after_first_answer(server, asked)
            assert (await running).ok
        assert [one.partition(" ")[0] for one in asked] == ["POST", "GET"]


async def test_a_run_that_is_cancelled_before_its_id_is_known_is_killed() -> None:
    async with served() as server:
        server.commands(seconds=None)
        box = await AsyncSandbox.create(socket=server.path)
        running = asyncio.ensure_future(box.run("prog"))
        await server.started()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        [execution] = server.executions
        assert execution.outcome.status is ExecutionStatus.KILLED


async def test_a_run_that_is_interrupted_before_its_id_is_known_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as server:
        server.commands(seconds=None)
        box = await asyncio.to_thread(Sandbox.create, socket=server.path)
        ask, is_first = Flows.ask, [True]

        async def interrupted(self: Flows, request: Any) -> Any:
            answer = await ask(self, request)
            if request.has_key and is_first.pop():
                is_first.append(False)
                raise KeyboardInterrupt
            return answer

        monkeypatch.setattr(Flows, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await asyncio.to_thread(box.run, "prog")
        [execution] = server.executions
        assert execution.outcome.status is ExecutionStatus.KILLED


def test_an_older_daemon_is_asked_without_a_bounded_wait(tmp_path: Path) -> None:
    fields = [{"path": "wait", "reason": "input should be a valid boolean"}]
    error = {"code": "INVALID_REQUEST", "message": "cannot", "hint": None, "retryable": False}
    refused = json.dumps({"error": {**error, "details": {"fields": fields}, "request_id": "r"}})
    bodies: list[Any] = []

    def serve(listener: socket.socket) -> None:
        for status, body in (("400 no", refused), ("201 Created", '{"id": "x"}')):
            connection, _ = listener.accept()
            with connection:
                head, _, data = connection.recv(65536).partition(b"\r\n\r\n")
                key = next(x for x in head.split(b"\r\n") if x.startswith(b"Idempotency-Key"))
                bodies.append((key, json.loads(data)["wait"]))
                answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
                connection.sendall(answer.encode())

    with listening(tmp_path / "s") as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        answer = Client(str(tmp_path / "s")).run({"argv": ["true"]}, wait_seconds=0.2)
        thread.join(10)
    assert answer == {"id": "x"}
    assert [wait for _, wait in bodies] == [0.2, False]
    assert bodies[0][0] != bodies[1][0]


async def test_a_start_says_how_it_stands_after_its_wait() -> None:
    async with served() as server:
        server.commands(seconds=None)
        body = {"argv": ["true"], "wait": 0.05}
        running = await server.ask("POST", "/v1/run", body)
        assert (running.status, running.json["status"]) == (201, "RUNNING")
        server.commands()
        ended = await server.ask("POST", "/v1/run", {**body, "wait": "10s"})
        assert (ended.status, ended.json["status"]) == (200, "EXITED")


async def test_a_server_that_stops_ends_the_wait_of_a_start_with_its_answer() -> None:
    async with served() as server:
        server.commands(seconds=None)
        body = {"argv": ["true"], "wait": 60}
        asking = asyncio.ensure_future(server.ask("POST", "/v1/run", body))
        async with asyncio.timeout(10):
            await server.started()
    answered = await asking
    assert (answered.status, answered.json["status"]) == (201, "RUNNING")


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_is_refused_for_want_of_room_is_asked_again_for_as_long_as_was_said(
    is_async: bool, asked: Asked
) -> None:
    async def create(seconds: float | None) -> object:
        if is_async:
            return await AsyncSandbox.create(socket=server.path, wait_for_capacity=seconds)
        return await asyncio.to_thread(
            Sandbox.create, socket=server.path, wait_for_capacity=seconds
        )

    async with served() as server:
        world = server.world
        world.breaks, world.fault, world.breaks_left = "take_uid", CapacityExceeded("cannot"), 1
        async with asyncio.timeout(30):
            await create(20.0)
            assert asked == ["POST /v1/sandboxes"] * 2
            world.breaks_left = None
            with pytest.raises(CapacityExceeded):
                await create(0.2)
            asked.clear()
            with pytest.raises(CapacityExceeded):
                await create(None)
        assert len(asked) == 1


def test_the_server_says_after_how_long_and_the_caller_for_how_long() -> None:
    error = refusal(503, form("CAPACITY_EXCEEDED"), "7")
    assert error.details["retry_after_seconds"] == 7
    assert Patience(60).pause_seconds(error) == 7.0
    assert 0 < Patience(2).pause_seconds(error) <= 2
    assert Patience(60).pause_seconds(refusal(429, form("EXECUTION_LIMIT_REACHED"))) == 1.0
    assert Patience(60).pause_seconds(refusal(503, form("CAPACITY_EXCEEDED"), "0")) > 0
    assert "retry_after_seconds" not in refusal(503, form("DRAINING"), "soon").details
    with pytest.raises(CapacityExceeded):
        Patience(0).pause_seconds(error)
    with pytest.raises(CapacityExceeded):
        Patience(60).pause_seconds(refusal(503, form("CAPACITY_EXCEEDED", retryable=False)))


def test_outside_asyncio_it_says_so() -> None:
    creating = AsyncSandbox.create(socket="/nonexistent")
    with pytest.raises(RuntimeError, match=r"trio\.to_thread\.run_sync"):
        creating.send(None)


@pytest.mark.parametrize(
    ("answer", "code"),
    [({"status": "EXITED", "exit_code": 3}, 3), ({"status": "SIGNALED", "signal": 11}, 139),
     ({"status": "OOM_KILLED"}, 137), ({"status": "TIMED_OUT"}, 137), ({"status": "LOST"}, 125)],
)  # fmt: skip
def test_one_number_for_how_it_ended(answer: dict[str, Any], code: int) -> None:
    assert exit_status(answer) == code


async def test_a_result_is_shown_in_one_short_line() -> None:
    async with served() as server:
        server.commands("ü".encode() * 5000, b"short\n")
        box = await AsyncSandbox.create(socket=server.path)
        result = await box.run("prog")
        shown = repr(result)
        assert shown == (
            f"<Result {result.id} EXITED returncode=0 stdout={'ü' * 40!r}... of 10000 bytes"
            " stderr='short\\n'>"
        )
