# SPDX-License-Identifier: Apache-2.0
"""The engine's facade for the API: finds what the caller may see, then calls the right part."""

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
    CapacityReport,
    ExecutionRequest,
    HostReport,
    Origin,
    Progress,
    SandboxChanges,
    SandboxReport,
    SandboxRequest,
)
from sandboxd.engine.sandboxes import Sandboxes
from sandboxd.engine.upkeep import Upkeep
from sandboxd.engine.usage_sampler import UsageSampler
from sandboxd.errors import OperationTimedOut

_log = logging.getLogger(__name__)


class Engine:
    """All sandboxes and executions of one daemon.

    ref: a sandbox's id, or the owner's name for the sandbox. Objects that the caller may not see
    raise SandboxNotFound or ExecutionNotFound, as absent objects do.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sandboxes = Sandboxes(context)
        self._executions = Executions(context)
        self._sampler = UsageSampler(context)
        self._disk = DiskKeeper(context)
        self._upkeep = Upkeep(context, self._sandboxes, self._executions, self._sampler, self._disk)
        self._uses = FileUses(context)
        self.is_ready = False

    async def open(self) -> None:
        """Adopt the sandboxes of an earlier daemon, then start the upkeep."""
        self._context.registry.is_draining = await self._context.store.load_draining()
        await self._sampler.restore()
        await Adoption(self._context, self._sandboxes, self._executions).run()
        self._upkeep.start()
        self.is_ready = True

    async def close(self) -> None:
        """Save the history; running executions go on."""
        await self._sampler.close()

    async def release_all(self) -> int:
        """Release every sandbox; return how many there were.

        Raises OperationTimedOut, after a try of each, where something is left of a sandbox.
        """
        self.is_ready = False
        lives = [live for live in self._context.registry if not live.is_over]
        for live in lives:
            self._sandboxes.start_release(live, ErrorCode.DRAINING)
        releases = (self._sandboxes.release(live, ErrorCode.DRAINING) for live in lives)
        await asyncio.gather(*releases, return_exceptions=True)
        left = [live.sandbox.id for live in lives if not live.is_over]
        if left:
            raise OperationTimedOut(
                f"cannot end all work: something is left of {', '.join(left)} (sandboxes)",
                hint="see the lines before for what is left, and try again",
            )
        return len(lives)

    # -- sandboxes

    async def create_sandbox(self, caller: Caller, request: SandboxRequest) -> Sandbox:
        """Create a sandbox for the caller; a retry returns the sandbox of the first request."""
        if (made := self._made_before(caller, request.origin)) is not None:
            return made.sandbox
        return (await self._sandboxes.create(caller, request)).sandbox

    def get_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        """Return a sandbox by id or by the caller's own name. Raises SandboxNotFound."""
        return self._context.registry.find(caller, ref).sandbox

    def list_sandboxes(self, caller: Caller) -> list[Sandbox]:
        """Return all sandboxes that the caller may see, oldest first."""
        return [live.sandbox for live in self._context.registry.visible(caller)]

    async def usage(self, caller: Caller, ref: str, *, by_execution: bool = False) -> SandboxReport:
        """Return a sandbox's usage, by running execution too if asked. Raises SandboxNotFound."""
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

    async def change_sandbox(self, caller: Caller, ref: str, asked: SandboxChanges) -> Sandbox:
        """Change limits, metadata and deadlines, running executions included."""
        live = self._context.registry.find_usable(caller, ref)
        await self._sandboxes.change(live, asked)
        return live.sandbox

    async def release_sandbox(self, caller: Caller, ref: str) -> None:
        """Release a sandbox and wait for the end of the release; a released sandbox is no error."""
        live = self._context.registry.find(caller, ref)
        await self._sandboxes.release(live, ErrorCode.RELEASED)

    async def suspend_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        """Freeze every process of a sandbox."""
        live = self._context.registry.find_usable(caller, ref)
        await self._sandboxes.suspend(live)
        return live.sandbox

    async def resume_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        """Thaw every process of a sandbox."""
        live = self._context.registry.find_usable(caller, ref)
        await self._sandboxes.resume(live)
        return live.sandbox

    # -- executions

    async def start_execution(
        self, caller: Caller, ref: str, request: ExecutionRequest
    ) -> Execution:
        """Start a command; return after a successful exec."""
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
        """Start a command in a new sandbox, released after the end and the reading of files.

        files: written before the start. reading: the caller must leave this context in any case.
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
        """Return an execution. Raises SandboxNotFound, ExecutionNotFound."""
        return self._seen(self._find(caller, ref, execution_id))

    def list_executions(self, caller: Caller, ref: str | None = None) -> list[Execution]:
        """Return the executions of a sandbox, or all that the caller may see; oldest first."""
        registry = self._context.registry
        lives = registry.visible(caller) if ref is None else [registry.find(caller, ref)]
        found = [running.execution for live in lives for running in live.executions.values()]
        return sorted(found, key=lambda execution: execution.created_at)

    async def wait_execution(
        self, caller: Caller, ref: str, execution_id: str, timeout_seconds: float | None
    ) -> Execution:
        """Wait for an execution's end; return the present state after the timeout (seconds)."""
        live = self._context.registry.find(caller, ref)
        running = live.execution(execution_id)
        await wait_finished(running, timeout_seconds)
        if live.sandbox.is_one_shot and running.execution.is_finished:
            if running.reading is not None:
                await running.reading.is_over.wait()
            # The caller's next run may need the same name and memory at once.
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
        """Kill an execution, or signal the main process or the main process's group."""
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
        """Write to an execution's standard input, at the speed at which the program reads."""
        await inputs.write(self._find(caller, ref, execution_id), chunks, progress)

    async def close_input(self, caller: Caller, ref: str, execution_id: str) -> None:
        """End an execution's standard input."""
        await inputs.close(self._find(caller, ref, execution_id))

    async def resize_terminal(
        self, caller: Caller, ref: str, execution_id: str, size: TerminalSize
    ) -> None:
        """Change the size of an execution's terminal."""
        await inputs.resize(self._find(caller, ref, execution_id), size)

    async def read_output(
        self, execution: Execution, stream: Stream, offset: int, size: int
    ) -> bytes:
        """Return bytes of an execution's spool; fewer than `size` at the end."""
        return await self._context.workspaces.read_output(
            execution.sandbox_id, execution.id, stream, offset, size
        )

    async def output_times(self, execution: Execution, stream: Stream) -> OutputTimes | None:
        """Return the times of an execution's output; None if unknown."""
        return await self._context.workspaces.output_times(
            execution.sandbox_id, execution.id, stream
        )

    @contextmanager
    def follow(self, caller: Caller, ref: str, execution_id: str) -> Iterator[asyncio.Event]:
        """Yield an event, set at output and end; to be cleared before the spools are read."""
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
        """The recent events of all owners; `channel` limits a caller's view."""
        return self._context.lifecycle.events

    async def history(self) -> HistorySnapshot:
        """Return usage, ends and refusals by the minute, until now."""
        return (await self._sampler.fresh()).snapshot()

    def note_refusal(self, uid: int, code: str) -> None:
        """Count an error answer in the history."""
        self._context.lifecycle.history.refused(uid, code)

    @property
    def counters(self) -> Counters:
        """Sums over all callers since the start of this daemon."""
        return self._context.lifecycle.counters

    # -- files

    def files(self, caller: Caller, ref: str) -> AbstractAsyncContextManager[SandboxFiles]:
        """Give access to files while the sandbox lives. Raises SandboxReleased, QuotaExceeded."""
        live = self._context.registry.find_usable(caller, ref)
        return self._uses.one(caller, live, self._disk.taker(live))

    # -- host

    def host(self, caller: Caller | None = None) -> HostReport:
        """Return the host's features and load.

        caller: for a caller without admin rights the load is the caller's own, and the free memory
        is rounded down to whole sandboxes.
        """
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
            ready=self.is_ready and not registry.is_draining,
            draining=registry.is_draining,
            executions_running=running,
            scheme=context.scheme.name,
            reason=context.scheme.reason,
            cgroup=settings.cgroup,
            capacity=CapacityReport(
                budget_bytes=budget.total_bytes,
                reserve_bytes=budget.reserve_bytes,
                committed_bytes=committed,
                free_bytes=free,
                slots=slots,
                tasks=registry.tasks.total,
                tasks_source=registry.tasks.source,
            ),
            limits=defaults,
            enforcement=context.enforcement(),
            isolation=settings.offers,
            missing=settings.missing,
        )

    async def set_draining(self, *, draining: bool) -> HostReport:
        """Refuse or accept new work, across restarts. Raises HostDiskFull, HostStorageFailed."""
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
        """Return the execution, with the present spool sizes while running."""
        execution = running.execution
        if not execution.is_finished:
            execution.stdout, execution.stderr = self._context.spooled(execution)
        return execution

    async def _release_after(self, live: LiveSandbox, begun: LiveExecution, use: batch.Use) -> None:
        await begun.finished.wait()
        if begun.reading is not None:
            try:
                await begun.reading.read(use)
            finally:
                # The request holds the data; the record in memory needs no copy.
                begun.reading = None
        await self._sandboxes.release(live, ErrorCode.RELEASED)
