# SPDX-License-Identifier: Apache-2.0
"""Handlers of executions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sandboxd.api.pages import page
from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.engine.requests import ExecutionRequest, SandboxRequest
from sandboxd.errors import Draining
from sandboxd.model import Execution
from sandboxd.wire.answers import INLINE_BYTES, ExecutionAnswer, ExecutionList, Inline
from sandboxd.wire.files import RunAnswer
from sandboxd.wire.queries import ExecutionsQuery, WaitQuery
from sandboxd.wire.requests import KillExecution, Nothing, Run, StartExecution


async def start_execution(call: Call[StartExecution, Nothing]) -> Reply:
    """Start a command; wait for its end unless told not to."""
    request = ExecutionRequest(
        command=call.body.decode(), limits=call.body.changes(), origin=call.origin
    )
    start = call.engine.start_execution(call.caller, call.sandbox, request)
    return await _started(call, await call.work.finish(start), call.body.wait_seconds)


async def run(call: Call[Run, Nothing]) -> Reply:
    """A sandbox and its one execution together."""
    body = call.body
    sandbox_limits, execution_limits = body.split_changes()
    sandbox = SandboxRequest(
        name=body.name,
        limits=sandbox_limits,
        require=body.required(),
        require_by=body.required_holder(),
        isolation=body.isolation,
        network=body.network,
        rootfs=body.rootfs,
        binds=body.decode_binds(),
        metadata=body.metadata or {},
        origin=call.origin,
    )
    execution = ExecutionRequest(command=body.decode(), limits=execution_limits, origin=call.origin)
    files = body.batch()
    start = call.engine.run(call.caller, sandbox, execution, files)
    started = await call.work.finish(start)
    if not files.read:
        return await _started(call, started, body.wait_seconds)
    place = (started.sandbox_id, started.id)
    # Asked for first: the sandbox is released as soon as they are read.
    reading = call.engine.files_read(call.caller, *place, files.read)
    ended = await _wait(call, started, None)
    async with call.work.waiting():
        found = await reading
    return Reply(200, RunAnswer.with_files(await _answer(call, ended), found))


async def list_executions(call: Call[Nothing, ExecutionsQuery]) -> Reply:
    """All the caller may see, or those of one sandbox."""
    query = call.query
    found = call.engine.list_executions(call.caller, call.sandbox or None)
    found = [one for one in found if query.fits_execution(one)]
    if query.name is not None or query.metadata is not None:
        sandboxes = call.engine.list_sandboxes(call.caller)
        fitting = {sandbox.id for sandbox in sandboxes if query.fits(sandbox)}
        found = [one for one in found if one.sandbox_id in fitting]
    executions, next_cursor = page(found, cursor=query.cursor, limit=query.limit)
    return Reply(200, ExecutionList.of(executions, next_cursor))


async def get_execution(call: Call[Nothing, WaitQuery]) -> Reply:
    """One execution; with `wait`, its end, if that comes soon enough."""
    timeout = call.query.wait
    execution = call.engine.get_execution(call.caller, call.sandbox, call.execution)
    if timeout and not execution.is_finished:
        execution = await _wait(call, execution, timeout)
    return Reply(200, await _answer(call, execution))


async def kill_execution(call: Call[KillExecution, Nothing]) -> Reply:
    """End it, or only send a signal."""
    kill = call.engine.kill_execution(
        call.caller,
        call.sandbox,
        call.execution,
        signal=call.body.signal,
        group=bool(call.body.group),
        grace_seconds=call.body.grace_seconds or 0.0,
    )
    return Reply(200, await _answer(call, await call.work.finish(kill)))


async def _started(call: Call[Any, Any], execution: Execution, wait_seconds: float | None) -> Reply:
    if wait_seconds is None:
        execution = await _wait(call, execution, None)
    elif wait_seconds:
        # A server that stops ends the wait early, and the command has started all the same.
        with suppress(Draining):
            execution = await _wait(call, execution, wait_seconds)
    status = 200 if execution.is_finished and wait_seconds != 0 else 201
    return Reply(status, await _answer(call, execution))


async def _wait(
    call: Call[Any, Any], execution: Execution, timeout_seconds: float | None
) -> Execution:
    async with call.work.waiting():
        return await call.engine.wait_execution(
            call.caller, execution.sandbox_id, execution.id, timeout_seconds
        )


async def _answer(call: Call[Any, Any], execution: Execution) -> ExecutionAnswer:
    # One byte more than is sent tells whether there is more.
    size = INLINE_BYTES + 1
    stdout = await call.engine.read_output(execution, "stdout", 0, size)
    stderr = await call.engine.read_output(execution, "stderr", 0, size)
    return ExecutionAnswer.of(
        execution, Inline.of(stdout, execution.stdout), Inline.of(stderr, execution.stderr)
    )
