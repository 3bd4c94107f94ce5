# SPDX-License-Identifier: Apache-2.0
"""The answer about an execution, with the output that its command printed."""

from __future__ import annotations

import pytest

from sandboxd.api.engine_port import Stream
from sandboxd.core.model import Execution, ExecutionStatus, Outcome
from tests.unit.api.harness import served


@pytest.mark.parametrize("while_reading", ["stdout", "stderr"])
async def test_the_answer_about_an_end_has_all_output(
    while_reading: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as server:
        engine = server.engine
        engine.hold.clear()
        made = (await server.ask("POST", "/v1/sandboxes", {})).json
        target = f"/v1/sandboxes/{made['id']}/executions"
        ran = (await server.ask("POST", target, {"command": "date", "wait": False})).json
        read_output = engine.read_output

        async def read(execution: Execution, stream: Stream, offset: int, size: int) -> bytes:
            data = await read_output(execution, stream, offset, size)
            # A thread of the daemon has read, and the command ends before the loop goes on.
            if stream == while_reading and not execution.is_finished:
                engine.print(execution.id, "stdout", b"last words")
                engine.finish(execution, Outcome(ExecutionStatus.EXITED, exit_code=0))
            return data

        monkeypatch.setattr(engine, "read_output", read)
        answer = (await server.ask("GET", f"{target}/{ran['id']}")).json
        assert answer["status"] == "EXITED"
        assert answer["stdout"] == "out\nlast words"
        assert answer["stdout_bytes"] == len("out\nlast words")
        assert not answer["stdout_inline_truncated"]
