# SPDX-License-Identifier: Apache-2.0
"""Handlers of executions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sandboxd.api.inlining import execution_reply
from sandboxd.api.pages import page_reply
from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.api.sandboxes import sandbox_request
from sandboxd.core.model import Execution
from sandboxd.engine.batch import Reading
from sandboxd.engine.requests import ExecutionRequest
from sandboxd.errors import Draining, NotFound
from sandboxd.wire.answers import ExecutionAnswer
from sandboxd.wire.queries import ExecutionsQuery, WaitQuery
from sandboxd.wire.requests import KillExecution, Nothing, Run, StartExecution


async def start_execution(call: Call[StartExecution, Nothing]) -> Reply:
    """Start a command, and wait for the end unless told not to."""
    wait_seconds = call.body.wait_seconds
    return await _started(call, await _start(call), wait_seconds)


async def _start(call: Call[StartExecution, Nothing]) -> Execution:
    body = call.body
    request = ExecutionRequest(command=body.decode(), limits=body.changes(), origin=call.origin)
    start = call.engine.start_execution(call.caller, call.sandbox, request)
    return await call.work.shield(start)


async def run(call: Call[Run, Nothing]) -> Reply:
    """Make a sandbox for one execution, start the execution and wait as asked."""
    wait_seconds, paths = call.body.wait_seconds, tuple(call.body.read_files or ())
    if not paths:
        return await _started(call, await _run(call, None), wait_seconds)
    with Reading(paths) as reading:
        started = await _run(call, reading)
        call.drop_body()
        async with call.work.waiting():
            await reading.size_bytes()
            if not started.is_finished:
                # Started by an earlier daemon: no files will be read.
                await _wait(call, started, None)
            reply = await execution_reply(call, started, reading=reading)
    # Wait for the sandbox's release: the next run may need the name and the memory at once. The
    # answer stands, even if the server stops or the record is removed meanwhile.
    with suppress(Draining, NotFound):
        await _wait(call, started, None)
    return reply


async def _run(call: Call[Run, Nothing], reading: Reading | None) -> Execution:
    body = call.body
    sandbox_limits, execution_limits = body.split_changes()
    sandbox = sandbox_request(call, sandbox_limits)
    execution = ExecutionRequest(command=body.decode(), limits=execution_limits, origin=call.origin)
    run = call.engine.run(call.caller, sandbox, execution, body.new_files(), reading)
    return await call.work.shield(run)


async def list_executions(call: Call[Nothing, ExecutionsQuery]) -> Reply:
    """List the executions that the caller may see, or a sandbox's executions."""
    query = call.query
    found = call.engine.list_executions(call.caller, call.sandbox or None)
    found = [one for one in found if query.fits_execution(one)]
    if query.name is not None or query.metadata is not None:
        sandboxes = call.engine.list_sandboxes(call.caller)
        fitting = {sandbox.id for sandbox in sandboxes if query.fits(sandbox)}
        found = [one for one in found if one.sandbox_id in fitting]
    return await page_reply(
        "executions",
        found,
        lambda execution: ExecutionAnswer.of(execution, None, None),
        call.share,
        cursor=query.cursor,
        limit=query.limit,
    )


async def get_execution(call: Call[Nothing, WaitQuery]) -> Reply:
    """Return an execution; with `wait`, at its end or after so many seconds."""
    timeout = call.query.wait
    execution = call.engine.get_execution(call.caller, call.sandbox, call.execution)
    if timeout and not execution.is_finished:
        execution = await _wait(call, execution, timeout)
    return await execution_reply(call, execution)


async def kill_execution(call: Call[KillExecution, Nothing]) -> Reply:
    """End the execution, or only send a signal."""
    kill = call.engine.kill_execution(
        call.caller,
        call.sandbox,
        call.execution,
        signal=call.body.signal,
        group=bool(call.body.group),
        grace_seconds=call.body.grace_seconds or 0.0,
    )
    return await execution_reply(call, await call.work.shield(kill))


async def _started(call: Call[Any, Any], execution: Execution, wait_seconds: float | None) -> Reply:
    # The shim has the input: the daemon need not keep a copy while the execution lasts.
    call.drop_body()
    if wait_seconds is None:
        execution = await _wait(call, execution, None)
    elif wait_seconds:
        # A stopping server ends the wait early, but the command has started and is answered.
        with suppress(Draining):
            execution = await _wait(call, execution, wait_seconds)
    status = 200 if execution.is_finished and wait_seconds != 0 else 201
    return await execution_reply(call, execution, status)


async def _wait(
    call: Call[Any, Any], execution: Execution, timeout_seconds: float | None
) -> Execution:
    async with call.work.waiting():
        return await call.engine.wait_execution(
            call.caller, execution.sandbox_id, execution.id, timeout_seconds
        )
