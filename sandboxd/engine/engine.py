# SPDX-License-Identifier: Apache-2.0
"""What the API calls: looks up what the caller may see, then lets the right part do the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import replace

from sandboxd.core.entries import NewFile
from sandboxd.core.logs import asking
from sandboxd.core.model import (
    Caller,
    ErrorCode,
    Execution,
    LimitChanges,
    OutputSummary,
    Sandbox,
    SandboxUsage,
    Stream,
    TerminalSize,
)
from sandboxd.core.outcome import with_ended
from sandboxd.core.times import OutputTimes
from sandboxd.engine import batch, inputs
from sandboxd.engine.adoption import Adoption
from sandboxd.engine.batch import Reading
from sandboxd.engine.context import Context
from sandboxd.engine.disk import DiskKeeper
from sandboxd.engine.events import Events
from sandboxd.engine.executions import Executions, wait_finished
from sandboxd.engine.file_uses import FileUses
from sandboxd.engine.history import HistorySnapshot
from sandboxd.engine.lifecycle import Counters
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.engine.registry import LiveExecution, LiveSandbox
from sandboxd.engine.requests import (
    ExecutionRequest,
    HostReport,
    Origin,
    Progress,
    SandboxReport,
    SandboxRequest,
)
from sandboxd.engine.sandboxes import Sandboxes
from sandboxd.engine.upkeep import Upkeep
from sandboxd.engine.usage_sampler import UsageSampler
from sandboxd.errors import OperationTimedOut

_log = logging.getLogger(__name__)


class Engine:
    """All sandboxes and executions of one daemon. `ref` is a sandbox's id, or its owner's name for
    it; what the caller may not see does not exist: SandboxNotFound, ExecutionNotFound."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sandboxes = Sandboxes(context)
        self._executions = Executions(context)
        self._sampler = UsageSampler(context)
        self._upkeep = Upkeep(context, self._sandboxes, self._executions, self._sampler)
        self._disk = DiskKeeper(context)
        self._uses = FileUses(context)
        self.is_ready = False

    async def open(self) -> None:
        """Take over what an earlier daemon left, then begin to serve."""
        self._context.registry.is_draining = await self._context.store.load_draining()
        await self._sampler.restore()
        await Adoption(self._context, self._sandboxes, self._executions).run()
        self._upkeep.start()
        self.is_ready = True

    async def close(self) -> None:
        """Save what is in memory alone; what runs goes on."""
        await self._sampler.close()

    async def release_all(self) -> None:
        """End everything; returns when it is gone or was given its time."""
        self.is_ready = False
        lives = [live for live in self._context.registry if not live.is_over]
        for live in lives:
            self._sandboxes.start_release(live, ErrorCode.DRAINING)
        for live in lives:
            await self._sandboxes.release(live, ErrorCode.DRAINING)

    # -- sandboxes

    async def create_sandbox(self, caller: Caller, request: SandboxRequest) -> Sandbox:
        """Make a sandbox of the caller's."""
        if (made := self._made_before(caller, request.origin)) is not None:
            return made.sandbox
        return (await self._sandboxes.create(caller, request)).sandbox

    def get_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        """By id or the caller's own name. Raises SandboxNotFound."""
        return self._context.registry.find(caller, ref).sandbox

    def list_sandboxes(self, caller: Caller) -> list[Sandbox]:
        """All that the caller may see, oldest first."""
        return [live.sandbox for live in self._context.registry.visible(caller)]

    async def usage(self, caller: Caller, ref: str, *, by_execution: bool = False) -> SandboxReport:
        """What it uses and has used, and its running executions. Raises SandboxNotFound."""
        live = self._context.registry.find(caller, ref)
        used = SandboxUsage()
        if not live.is_over:
            used = await self._context.scheme.usage(live.sandbox)
            used = replace(used, disk_bytes=await self._disk.used(live))
        if used.of_running_only:
            ended = [one.execution.usage for one in live.executions.values() if one.shim is None]
            used = with_ended(used, ended, are_all=not live.has_pruned)
        return SandboxReport(
            sandbox=live.sandbox,
            usage=used,
            executions_running=len(live.running()),
            executions_total=len(live.executions),
            by_execution=await self._by_execution(live) if by_execution else None,
        )

    async def change_sandbox(
        self,
        caller: Caller,
        ref: str,
        changes: LimitChanges,
        *,
        metadata: Mapping[str, str] | None,
        lifetime_seconds: float | None,
        idle_timeout_seconds: float | None,
        force: bool,
    ) -> Sandbox:
        """Change limits, metadata and deadlines, running executions included."""
        live = self._context.registry.find_usable(caller, ref)
        await self._sandboxes.change(
            live,
            changes,
            metadata=metadata,
            lifetime_seconds=lifetime_seconds,
            idle_timeout_seconds=idle_timeout_seconds,
            force=force,
        )
        return live.sandbox

    async def release_sandbox(self, caller: Caller, ref: str) -> None:
        """Remove it and wait until it is gone; fine when it already is."""
        live = self._context.registry.find(caller, ref)
        await self._sandboxes.release(live, ErrorCode.RELEASED)

    async def suspend_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        """Freeze every process."""
        live = self._context.registry.find_usable(caller, ref)
        await self._sandboxes.suspend(live)
        return live.sandbox

    async def resume_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        """Let every process go on."""
        live = self._context.registry.find_usable(caller, ref)
        await self._sandboxes.resume(live)
        return live.sandbox

    # -- executions

    async def start_execution(
        self, caller: Caller, ref: str, request: ExecutionRequest
    ) -> Execution:
        """Start a command; returns once its exec succeeded."""
        if request.origin is not None and request.origin.is_retry:
            before = self._context.registry.find(caller, ref).made_by(request.origin.request_id)
            if before is not None:
                return self._seen(before)
        live = self._context.registry.find_usable(caller, ref)
        return (await self._executions.start(live, request)).execution

    async def run(
        self,
        caller: Caller,
        sandbox: SandboxRequest,
        execution: ExecutionRequest,
        files: tuple[NewFile, ...] = (),
        reading: Reading | None = None,
    ) -> Execution:
        """Start a command in a sandbox that lives until its end, and until files are read.

        files: written before. reading: its context has to end in any case.
        """
        before = self._made_before(caller, sandbox.origin)
        if before is not None and before.executions:
            if reading is not None:
                reading.give_up()
            return self._seen(next(iter(before.executions.values())))
        live = await self._sandboxes.create(caller, sandbox, one_shot=True)

        def use() -> AbstractAsyncContextManager[SandboxFiles]:
            return self._uses.one(caller, live, self._disk.taker(live))

        try:
            if files:
                await batch.write(use, files)
            begun = await self._executions.start(live, execution)
        except BaseException:
            await self._sandboxes.release(live, ErrorCode.RELEASED)
            self._context.registry.forget(live)
            await self._context.workspaces.remove(live.sandbox.id)
            raise
        name = f"run of sandbox {live.sandbox.id}"
        begun.reading = reading
        self._context.tasks.start(self._release_after(live, begun, use), name)
        return begun.execution

    def get_execution(self, caller: Caller, ref: str, execution_id: str) -> Execution:
        """One execution. Raises SandboxNotFound, ExecutionNotFound."""
        return self._seen(self._find(caller, ref, execution_id))

    def list_executions(self, caller: Caller, ref: str | None = None) -> list[Execution]:
        """Those of one sandbox, or all that the caller may see; oldest first."""
        registry = self._context.registry
        lives = registry.visible(caller) if ref is None else [registry.find(caller, ref)]
        found = [running.execution for live in lives for running in live.executions.values()]
        return sorted(found, key=lambda execution: execution.created_at)

    async def wait_execution(
        self, caller: Caller, ref: str, execution_id: str, timeout_seconds: float | None
    ) -> Execution:
        """Wait for its end; after the timeout as it is then."""
        live = self._context.registry.find(caller, ref)
        running = live.execution(execution_id)
        await wait_finished(running, timeout_seconds)
        if live.sandbox.is_one_shot and running.execution.is_finished:
            if running.reading is not None:
                await running.reading.is_over.wait()
            # The next run may need its name and its memory at once.
            with suppress(OperationTimedOut):
                await self._sandboxes.release(live, ErrorCode.RELEASED)
        return self._seen(running)

    async def kill_execution(
        self,
        caller: Caller,
        ref: str,
        execution_id: str,
        *,
        signal: int | None,
        group: bool,
        grace_seconds: float,
    ) -> Execution:
        """Kill it, or send its main process (or the group of that) a signal."""
        live = self._context.registry.find(caller, ref)
        return await self._executions.kill(
            live, execution_id, signal=signal, group=group, grace_seconds=grace_seconds
        )

    async def write_input(
        self,
        caller: Caller,
        ref: str,
        execution_id: str,
        chunks: AsyncIterator[bytes],
        progress: Progress,
    ) -> None:
        """Write to its standard input, as fast as the program reads it."""
        await inputs.write(self._find(caller, ref, execution_id), chunks, progress)

    async def close_input(self, caller: Caller, ref: str, execution_id: str) -> None:
        """End its standard input."""
        await inputs.close(self._find(caller, ref, execution_id))

    async def resize_terminal(
        self, caller: Caller, ref: str, execution_id: str, size: TerminalSize
    ) -> None:
        """Change its terminal's size."""
        await inputs.resize(self._find(caller, ref, execution_id), size)

    async def read_output(
        self, execution: Execution, stream: Stream, offset: int, size: int
    ) -> bytes:
        """Bytes of an execution's spool; fewer than `size` at its end."""
        return await self._context.workspaces.read_output(
            execution.sandbox_id, execution.id, stream, offset, size
        )

    async def output_times(self, execution: Execution, stream: Stream) -> OutputTimes | None:
        """When an execution's output came; None where nobody knows."""
        return await self._context.workspaces.output_times(
            execution.sandbox_id, execution.id, stream
        )

    @contextmanager
    def follow(self, caller: Caller, ref: str, execution_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever there may be more output, and at the end; who waits for it
        clears it before looking."""
        running = self._find(caller, ref, execution_id)
        execution, news = running.execution, asyncio.Event()
        watch = self._context.workspaces.watch_output
        with watch(execution.sandbox_id, execution.id, news.set):
            running.followers.add(news)
            try:
                yield news
            finally:
                running.followers.discard(news)

    # -- what happened

    @property
    def events(self) -> Events:
        """What happened lately; `owner_uid` says who may see it."""
        return self._context.lifecycle.events

    async def history(self) -> HistorySnapshot:
        """What was used, ended and refused by the minute, until now."""
        return (await self._sampler.fresh()).snapshot()

    def note_refusal(self, uid: int, code: str) -> None:
        """An error was answered, and the history is to have it."""
        self._context.lifecycle.history.refused(uid, code)

    @property
    def counters(self) -> Counters:
        """Sums over all callers since this daemon started."""
        return self._context.lifecycle.counters

    # -- files

    def files(self, caller: Caller, ref: str) -> AbstractAsyncContextManager[SandboxFiles]:
        """The files of a sandbox that is not released; a release meanwhile ends the use.

        Raises SandboxNotFound, SandboxReleased, QuotaExceeded.
        """
        live = self._context.registry.find_usable(caller, ref)
        return self._uses.one(caller, live, self._disk.taker(live))

    # -- host

    def host(self, caller: Caller | None = None) -> HostReport:
        """What this daemon can do here, and how much of it is taken: by the caller, where there is
        one that is no admin, and room for others in whole sandboxes."""
        context, settings = self._context, self._context.settings
        registry, defaults = context.registry, settings.policy.defaults
        budget, committed = registry.budget, registry.committed_bytes
        running, free = registry.executions_running, max(0, budget.total_bytes - committed)
        slots = free // defaults.memory_bytes
        if caller is not None and not caller.is_admin:
            committed, running = registry.share_of(caller.uid)
            free = slots * defaults.memory_bytes
        return HostReport(
            version=settings.version,
            instance_id=settings.instance_id,
            scheme=context.scheme.name,
            reason=context.scheme.reason,
            ready=self.is_ready and not context.registry.is_draining,
            draining=context.registry.is_draining,
            executions_running=running,
            budget_bytes=budget.total_bytes,
            reserve_bytes=budget.reserve_bytes,
            committed_bytes=committed,
            free_bytes=free,
            slots=slots,
            tasks_total=context.registry.tasks.total,
            tasks_source=context.registry.tasks.source,
            limits=defaults,
            enforcement=context.enforcement(defaults),
            offers=settings.offers,
            cgroup_mode=settings.cgroup_mode,
            cgroup_version=settings.cgroup_version,
            cgroup_detail=settings.cgroup_detail,
            missing=settings.missing,
        )

    async def set_draining(self, *, draining: bool) -> HostReport:
        """Take no new work (or take it again), over restarts too; what runs goes on.

        Raises HostDiskFull, HostStorageFailed.
        """
        await self._context.store.save_draining(draining)
        self._context.registry.is_draining = draining
        what = "Draining: taking no new work" if draining else "Taking work again"
        _log.warning("%s%s", what, asking())
        return self.host()

    async def _by_execution(self, live: LiveSandbox) -> Mapping[str, SandboxUsage]:
        running = [one.execution for one in live.running()]
        if live.is_over or not running:
            return {}
        return await self._context.scheme.execution_usages(live.sandbox, running)

    def _made_before(self, caller: Caller, origin: Origin | None) -> LiveSandbox | None:
        if origin is None or not origin.is_retry:
            return None
        return self._context.registry.made_by(caller, origin.request_id)

    def _find(self, caller: Caller, ref: str, execution_id: str) -> LiveExecution:
        return self._context.registry.find(caller, ref).execution(execution_id)

    def _seen(self, running: LiveExecution) -> Execution:
        """The execution, with what it printed so far while it runs."""
        execution = running.execution
        if not execution.is_finished:
            size = self._context.workspaces.output_size
            sandbox_id, execution_id = execution.sandbox_id, execution.id
            execution.stdout = OutputSummary(size(sandbox_id, execution_id, "stdout"))
            execution.stderr = OutputSummary(size(sandbox_id, execution_id, "stderr"))
        return execution

    async def _release_after(self, live: LiveSandbox, begun: LiveExecution, use: batch.Use) -> None:
        await begun.finished.wait()
        if begun.reading is not None:
            try:
                await begun.reading.read(use)
            finally:
                # The request has what was read; a record in memory needs no copy.
                begun.reading = None
        await self._sandboxes.release(live, ErrorCode.RELEASED)
