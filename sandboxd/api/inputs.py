# SPDX-License-Identifier: Apache-2.0
"""Handlers of a running command's input: .../stdin, .../stdin/close, .../resize."""

from __future__ import annotations

from contextlib import aclosing

from sandboxd.api.decode import body_chunks
from sandboxd.api.hangup import ending_with_client
from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.engine.requests import Progress
from sandboxd.errors import SandboxdError
from sandboxd.wire.answers import InputAnswer
from sandboxd.wire.requests import Nothing, TerminalBody


async def write_input(call: Call[Nothing, Nothing]) -> Reply:
    """Write the body to standard input as it arrives. Errors carry `written_bytes`."""
    progress = Progress()
    execution = call.engine.get_execution(call.caller, call.sandbox, call.execution)
    try:
        async with call.work.streaming(call.caller.uid, execution.id):
            with ending_with_client(call.request):
                async with aclosing(body_chunks(call.request)) as chunks:
                    await call.engine.write_input(
                        call.caller, call.sandbox, call.execution, chunks, progress
                    )
    except SandboxdError as exc:
        exc.details["written_bytes"] = progress.written_bytes
        raise
    return Reply(200, InputAnswer(written_bytes=progress.written_bytes))


async def close_input(call: Call[Nothing, Nothing]) -> Reply:
    """Close standard input, in turn after all input being written."""
    execution = call.engine.get_execution(call.caller, call.sandbox, call.execution)
    async with call.work.streaming(call.caller.uid, execution.id):
        await call.engine.close_input(call.caller, call.sandbox, call.execution)
    return Reply(204)


async def resize_terminal(call: Call[TerminalBody, Nothing]) -> Reply:
    """Set the size of the terminal."""
    await call.engine.resize_terminal(call.caller, call.sandbox, call.execution, call.body.size())
    return Reply(204)
