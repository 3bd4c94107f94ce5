# SPDX-License-Identifier: Apache-2.0
"""The answer about an execution, with the output that its command printed."""

from __future__ import annotations

import asyncio

import pytest

from sandboxd.core.model import Stream
from tests.unit.api.harness import ADMIN, served


@pytest.mark.parametrize("while_reading", ["stdout", "stderr"])
async def test_the_answer_about_an_end_has_all_output(while_reading: Stream) -> None:
    async with served() as server:
        server.commands(seconds=None)
        made = (await server.ask("POST", "/v1/sandboxes", {})).json
        target = f"/v1/sandboxes/{made['id']}/executions"
        ran = (await server.ask("POST", target, {"command": "date", "wait": False})).json
        gate = server.world.gates[f"read {while_reading}"] = asyncio.Event()
        asking = asyncio.ensure_future(server.ask("GET", f"{target}/{ran['id']}"))
        await server.world.until(lambda: f"read {while_reading} waits" in server.world.calls)
        [shim] = server.shims
        shim.print("stdout", b"last words")
        shim.finish()
        await server.engine.wait_execution(ADMIN, made["id"], ran["id"], 10)
        gate.set()
        answer = (await asking).json
        assert answer["status"] == "EXITED"
        assert answer["stdout"] == "out\nlast words"
        assert answer["stdout_bytes"] == len("out\nlast words")
        assert not answer["stdout_inline_truncated"]
