# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of one execution: start, watch, judge, collect."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

from sandboxd.core.levels import HOME_INSIDE
from sandboxd.core.model import (
    EnforcedBy,
    ErrorCode,
    Execution,
    ExecutionStatus,
    Outcome,
    OutputSummary,
    Sandbox,
    SandboxState,
)
from sandboxd.core.names import new_id
from sandboxd.core.outcome import Facts, decide, killed, lost, timed_out, usage
from sandboxd.core.turns import Turn
from sandboxd.engine.context import Context
from sandboxd.engine.disk import name_full_disk
from sandboxd.engine.ports.launch import LaunchRequest, Shim
from sandboxd.engine.registry import LiveExecution, LiveSandbox
from sandboxd.engine.requests import ExecutionRequest
from sandboxd.engine.retention import argument_bytes
from sandboxd.errors import (
    ExecutionFinished,
    ExecutionLimitReached,
    SandboxdError,
    SandboxReleased,
    SandboxSuspended,
)

_log = logging.getLogger(__name__)
_GONE_SECONDS = 2.0
_KILL_ANSWER_SECONDS = 15.0
# A shim out of reach may be writing the record.
_LAST_SECONDS = 2.0
# Every host's terminfo knows xterm, and users' terminals are compatible.
_TERMINAL_TYPE = "xterm"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Executions:
    """Starts executions and follows each until the end."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def start(self, live: LiveSandbox, request: ExecutionRequest) -> LiveExecution:
        """Start an execution; return after the exec. On any error no trace is left."""
        async with self._slot(live, argument_bytes(request.command)):
            execution = self._new(live.sandbox, request)
            begun = LiveExecution(execution)
            terminals = self._context.registry.terminals_for(
                live.sandbox.owner_uid, has_tty=request.command.tty is not None
            )
            in_turn = self._context.starts.one(Turn(live.sandbox.owner_uid, live.sandbox.id))
            async with AsyncExitStack() as undo:
                # Without `go`: the sandbox's own limits make the exec as slow as may be.
                async with in_turn:
                    shim = await self._launch(live, begun, undo, terminals)
                execution.started_at = await shim.go()
                undo.pop_all()
            # The shim holds the input; the record in memory needs no copy.
            execution.command = replace(execution.command, stdin=None)
            execution.outcome = Outcome(ExecutionStatus.RUNNING)
            await self.keep(execution)
        self._context.lifecycle.started(live.sandbox, execution)
        self.watch(live, begun)
        return begun

    def watch(self, live: LiveSandbox, running: LiveExecution) -> None:
        """Follow a started or adopted execution until the end, in the background."""
        limit = running.execution.limits.timeout_seconds
        grace = running.execution.command.kill_grace_seconds
        running.deadline_monotonic = self._context.clock.monotonic() + limit + grace
        name = f"execution {running.execution.id}"
        running.watcher = self._context.tasks.start(self._watch(live, running), name)

    async def kill(
        self,
        live: LiveSandbox,
        execution_id: str,
        *,
        signal: int | None,
        group: bool,
        grace_seconds: float,
    ) -> Execution:
        """Kill the whole process tree, or send a signal.

        signal: None and 9 kill the tree; any different number goes to the main process or the main
        process's group. Raises ExecutionFinished.
        """
        running = live.execution(execution_id)
        if running.shim is None or running.execution.is_finished:
            raise ExecutionFinished(
                f"cannot kill execution {execution_id}: it is {running.execution.outcome.status}"
            )
        if signal not in (None, 9):
            await running.shim.signal(signal, group=group)
            return running.execution
        seconds = await order_kill(running, ErrorCode.KILLED_BY_CALLER, grace_seconds=grace_seconds)
        await wait_finished(running, seconds)
        if running.shim is not None and not running.execution.is_finished:
            await destroy(running)
            await wait_finished(running, _GONE_SECONDS)
        return running.execution

    async def conclude(
        self, live: LiveSandbox, running: LiveExecution, facts: Facts | None
    ) -> None:
        """Judge and save an end, and publish the event. facts: None if the shim left no record."""
        if facts is None:
            _log.error("Cannot tell how execution %s ended: its shim died", running.execution.id)
            outcome = _unseen(running)
        else:
            outcome = await name_full_disk(self._context, live.sandbox, _judge(running, facts))
        if running.shim is not None:
            # The shim counts as a process of the sandbox until gone, and the next command may start
            # at once. An unkillable process (D state) keeps the shim: then the record is the end.
            if not await running.shim.gone(timeout_seconds=_GONE_SECONDS):
                running.remains = running.shim
        self._finish(running, outcome, facts)
        live.touch(self._context.clock)
        try:
            await self.keep(running.execution)
            if live.sandbox.idle_timeout_seconds is not None:
                # The idle time must survive a restart of the daemon.
                await self._context.save_sandbox(live.sandbox)
        finally:
            self._context.lifecycle.ended(live.sandbox, running.execution)
            running.conclude()

    def _finish(self, running: LiveExecution, outcome: Outcome, facts: Facts | None) -> None:
        """Write outcome, usage, output sizes and end time into the record."""
        execution = running.execution
        execution.outcome = outcome
        if facts is not None:
            execution.usage = usage(facts)
            execution.leftovers_killed = facts.leftovers_killed
            execution.unkillable = not facts.kill_complete
            execution.finished_at = datetime.fromtimestamp(facts.finished_at, UTC)
            streams = (*facts.streams, OutputSummary(), OutputSummary())
            execution.stdout, execution.stderr = streams[0], streams[1]
        else:
            execution.finished_at = self._context.clock.now()
            execution.stdout, execution.stderr = self._context.spooled(execution)
        # No answer shows the environment of an ended execution.
        execution.command = replace(execution.command, env={})
        running.shim = None
        execution.finished_monotonic = self._context.clock.monotonic()

    # -- private

    @asynccontextmanager
    async def _slot(self, live: LiveSandbox, record_bytes: int) -> AsyncIterator[None]:
        """Hold a place among the sandbox's executions.

        record_bytes: the memory of the execution's arguments. Raises Draining, SandboxSuspended,
        SandboxReleased, ExecutionLimitReached, QuotaExceeded, CapacityExceeded.
        """
        self._context.registry.check_takes_work()
        if live.sandbox.state is SandboxState.SUSPENDED:
            raise SandboxSuspended(
                f"cannot start an execution: sandbox {live.sandbox.id} is suspended",
                hint="resume it first",
            )
        if live.sandbox.state is not SandboxState.READY:
            raise SandboxReleased(
                f"cannot start an execution: sandbox {live.sandbox.id} is {live.sandbox.state}"
            )
        maximum = self._context.settings.max_executions
        running = len(live.running()) + live.starting
        if running >= maximum:
            raise ExecutionLimitReached(
                f"cannot start an execution: sandbox {live.sandbox.id} runs {maximum} already",
                hint="wait for one to end, or use another sandbox",
                details={"maximum": maximum, "running": running},
            )
        self._context.registry.check_quota(
            live.sandbox.owner_uid, executions=1, record_bytes=record_bytes
        )
        self._context.registry.check_tasks(
            live, live.sandbox.limits.pids, is_sum_held=self._context.scheme.holds_all_tasks
        )
        live.starting += 1
        live.starting_bytes += record_bytes
        live.touch(self._context.clock)
        try:
            yield
        finally:
            async with live.settled:
                live.starting -= 1
                live.starting_bytes -= record_bytes
                live.settled.notify_all()

    def _new(self, sandbox: Sandbox, request: ExecutionRequest) -> Execution:
        context = self._context
        limits = context.settings.policy.for_execution(
            sandbox.limits,
            request.limits,
            at_leisure=request.command.tty is not None and not sandbox.names_timeout,
        )
        execution_id = new_id()
        return Execution(
            id=execution_id,
            sandbox_id=sandbox.id,
            command=request.command,
            limits=limits,
            own_limits=frozenset(request.limits.as_dict()),
            enforcement=context.enforcement(),
            created_at=context.clock.now(),
            unit=context.scheme.execution_unit(sandbox.id, execution_id),
            request_id=None if request.origin is None else request.origin.request_id,
        )

    async def _launch(
        self, live: LiveSandbox, begun: LiveExecution, undo: AsyncExitStack, terminals: int
    ) -> Shim:
        """Make the directory, the held shim and the scope; `undo` reverts all in reverse order."""
        context, sandbox, execution = self._context, live.sandbox, begun.execution
        await context.workspaces.create_execution(sandbox.id, execution.id)
        undo.push_async_callback(context.workspaces.remove_execution, sandbox.id, execution.id)
        await context.store.save_execution(execution)
        undo.push_async_callback(self._give_up, live, begun)
        await context.workspaces.follow_host(sandbox)
        shim = await context.launcher.launch(self._launch_request(sandbox, execution, terminals))
        begun.shim = shim
        live.executions[execution.id] = begun
        undo.push_async_callback(shim.abort)
        await context.scheme.place(sandbox, execution, shim)
        return shim

    async def _give_up(self, live: LiveSandbox, begun: LiveExecution) -> None:
        begun.shim = None
        live.executions.pop(begun.execution.id, None)
        await self._context.scheme.collect(live.sandbox, begun.execution)

    def _launch_request(
        self, sandbox: Sandbox, execution: Execution, terminals: int
    ) -> LaunchRequest:
        context = self._context
        home = context.workspaces.home(sandbox.id)
        if sandbox.has_own_root:
            home = HOME_INSIDE
        return LaunchRequest(
            sandbox=sandbox,
            execution=execution,
            cgroup=context.scheme.execution_cgroup(sandbox.id, execution.id),
            is_supervised=not context.scheme.held_by_kernel,
            rlimits=context.scheme.rlimits(execution.limits),
            env=self._environment(sandbox, execution, home),
            cwd=os.path.join(home, execution.command.cwd or ""),
            record_directory=context.workspaces.record_directory(sandbox.id, execution.id),
            tmp_directory=context.workspaces.tmp(sandbox.id),
            identity_files=context.workspaces.identity_files(sandbox),
            private_mounts=context.settings.private_mounts,
            terminals=terminals,
            # Each of many writers passes the bound by a piece, and below the floor itself nobody's
            # sandbox is made.
            spool_floor_bytes=context.workspaces.floor_bytes * 5 // 4,
        )

    def _environment(self, sandbox: Sandbox, execution: Execution, home: str) -> Mapping[str, str]:
        settings = self._context.settings
        private = settings.private_mounts or sandbox.has_own_root
        hints = self._context.scheme.environment(execution.limits)
        return {
            "PATH": f"{_PATH}:{home}/.local/bin",
            "HOME": home,
            "USER": "sandbox",
            "LOGNAME": "sandbox",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp" if private else self._context.workspaces.tmp(sandbox.id),  # noqa: S108
            **({"TERM": _TERMINAL_TYPE} if execution.command.tty is not None else {}),
            **{name: value for name, value in hints.items() if name in settings.runtime_hints},
            **sandbox.env,
            **execution.command.env,
        }

    async def _watch(self, live: LiveSandbox, running: LiveExecution) -> None:
        shim = running.shim
        if shim is None:
            return
        await self.conclude(live, running, await shim.ended())
        try:
            await self._context.scheme.collect(live.sandbox, running.execution)
        finally:
            async with live.settled:
                running.collected.set()
                live.settled.notify_all()

    async def keep(self, execution: Execution) -> None:
        """Save the record; a full disk is logged, since the record in memory stays valid."""
        try:
            await self._context.store.save_execution(execution)
        except SandboxdError as exc:
            _log.error("Cannot keep the record of execution %s: %s", execution.id, exc)


def _judge(running: LiveExecution, facts: Facts) -> Outcome:
    """Return the verdict on an execution that left a record, from the record alone."""
    execution = running.execution
    pids = execution.enforcement.get("pids")
    is_held = pids is not None and pids.by is EnforcedBy.KERNEL
    return decide(
        facts,
        own_limits=execution.own_limits,
        cpu_limit_seconds=execution.limits.cpu_seconds,
        pids_limit=execution.limits.pids if is_held else None,
    )


def _unseen(running: LiveExecution) -> Outcome:
    """Return the verdict on an execution whose shim left no record."""
    if running.is_overdue:
        return timed_out(running.execution.own_limits)
    if running.kill_code is not None:
        return killed(running.kill_code)
    return lost()


async def order_kill(
    running: LiveExecution, code: ErrorCode, *, grace_seconds: float = 0.0
) -> float:
    """Order a running execution's shim to kill; return in how many seconds an end is due."""
    if running.shim is None:
        return 0.0
    running.kill_code = running.kill_code or code
    is_told = await running.shim.kill(code, grace_seconds=grace_seconds)
    return grace_seconds + _KILL_ANSWER_SECONDS if is_told else _LAST_SECONDS


async def destroy(running: LiveExecution) -> None:
    """End an execution whose shim did not end the execution in time."""
    if running.shim is not None:
        _log.error("The shim of execution %s does not obey: ending it", running.execution.id)
        await running.shim.destroy()


async def wait_finished(running: LiveExecution, timeout_seconds: float | None) -> None:
    """Wait for the end, at most `timeout_seconds`; a timeout is no error."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds):
            await running.finished.wait()
