# SPDX-License-Identifier: Apache-2.0
"""An engine that only remembers: no process is ever started. Ownership rules are the real ones."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sandboxd.api.engine_port import Stream
from sandboxd.core.entries import NewFile
from sandboxd.core.levels import Findings, offers
from sandboxd.core.model import (
    Caller,
    EnforcedBy,
    Enforcement,
    ErrorCode,
    Execution,
    ExecutionStatus,
    Isolation,
    LimitChanges,
    Limits,
    Network,
    Outcome,
    OutputSummary,
    Pressure,
    Sandbox,
    SandboxState,
    SandboxUsage,
    SchemeName,
    TerminalSize,
    Usage,
)
from sandboxd.core.names import new_id
from sandboxd.core.times import OutputTimes
from sandboxd.core.turns import Turn
from sandboxd.engine.batch import Reading
from sandboxd.engine.events import Events
from sandboxd.engine.history import History, Told
from sandboxd.engine.life import Counters
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.engine.requests import (
    ExecutionRequest,
    HostReport,
    Progress,
    SandboxReport,
    SandboxRequest,
)
from sandboxd.errors import (
    CapacityExceeded,
    ExecutionFinished,
    ExecutionNotFound,
    SandboxdError,
    SandboxNotFound,
    StdinClosed,
)
from sandboxd.workspace.files import HomeFiles
from sandboxd.workspace.place import Place
from sandboxd.workspace.removal import remove_tree
from sandboxd.workspace.workers import Workers
from tests.unit.fake_files import FakeFiles

LIMITS = Limits(
    memory_bytes=2 << 30,
    cpus=2.0,
    pids=512,
    io_read_bytes_per_second=256 << 20,
    io_write_bytes_per_second=256 << 20,
    disk_bytes=10 << 30,
    timeout_seconds=300.0,
    cpu_seconds=None,
    max_output_bytes=10 << 20,
    open_files=1024,
    file_size_bytes=10 << 30,
)
HELD = Enforcement(EnforcedBy.KERNEL, "memory.max")
BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class FakeEngine:
    """`hold`: executions stay RUNNING until it is set. `fails`: raised by every async call.

    None ends by itself: it takes `finish`, or `hold` and somebody who waits for its end.
    """

    def __init__(self) -> None:
        self.sandboxes: dict[str, Sandbox] = {}
        self.executions: dict[str, Execution] = {}
        self.outputs: dict[tuple[str, str], bytes] = {}
        self.requests: list[object] = []
        self.ready = True
        self.hold = asyncio.Event()
        self.hold.set()
        self.starting = asyncio.Event()
        self.started = asyncio.Event()
        self.waited = asyncio.Event()
        self.written: list[NewFile] = []
        self.home = FakeFiles({})
        self.readings: set[asyncio.Task[None]] = set()
        self.followed = asyncio.Event()
        self.signalled = asyncio.Event()
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.fails: Exception | None = None
        self.stdout = b"out\n"
        self.stderr = b""
        self.fed: dict[str, bytes] = {}
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.unfollowed = asyncio.Event()
        self.followers: dict[str, list[asyncio.Event]] = {}
        self._ticks = 0
        self.draining = False
        self.executions_running = 0
        self.host_asked_by: Caller | None = None
        self.events = Events()
        self.counters = Counters()
        self.past = History(self)

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self._ticks)

    def monotonic(self) -> float:
        return float(self._ticks)

    async def history(self) -> Told:
        return self.past.told()

    def note_refusal(self, uid: int, code: str) -> None:
        self.past.refused(uid, code)

    @property
    def is_ready(self) -> bool:
        return self.ready

    def host(self, caller: Caller | None = None) -> HostReport:
        self.host_asked_by = caller
        return HostReport(
            version="0",
            instance_id="abcdefghijkl",
            scheme=SchemeName.SYSTEMD,
            reason="systemd is PID 1",
            ready=self.ready and not self.draining,
            draining=self.draining,
            executions_running=self.executions_running,
            budget_bytes=8 << 30,
            reserve_bytes=1 << 28,
            committed_bytes=1 << 30,
            free_bytes=7 << 30,
            slots=3,
            tasks_total=28672,
            tasks_source="kernel.pid_max",
            limits=LIMITS,
            enforcement=self._enforcement(),
            offers=offers(Findings(is_root=True, kernel_limits=True), "auto"),
            cgroup_mode="auto",
            cgroup_version="v2",
            cgroup_detail="delegated",
            missing=(),
        )

    async def set_draining(self, *, draining: bool) -> HostReport:
        self.draining = draining
        return self.host()

    def _enforcement(self) -> dict[str, Enforcement]:
        return {
            "memory_bytes": HELD,
            "cpus": HELD,
            "pids": HELD,
            "io_read_bytes_per_second": Enforcement(EnforcedBy.NONE, "no block device"),
        }

    def _now(self) -> datetime:
        self._ticks += 1
        return BEGIN + timedelta(seconds=self._ticks)

    def _fail(self) -> None:
        if self.fails is not None:
            raise self.fails

    async def create_sandbox(self, caller: Caller, request: SandboxRequest) -> Sandbox:
        self._fail()
        self.requests.append(request)
        self.starting.set()
        await self.may_start.wait()
        now = self._now()
        sandbox = Sandbox(
            id=new_id(),
            name=request.name,
            owner_uid=caller.uid,
            uid=1879048192,
            isolation=Isolation.BASIC,
            network=Network.HOST,
            scheme=SchemeName.SYSTEMD,
            limits=LIMITS.with_changes(request.limits),
            enforcement=self._enforcement(),
            created_at=now,
            last_used_at=now,
            env=request.env,
            metadata=request.metadata,
        )
        self.sandboxes[sandbox.id] = sandbox
        return sandbox

    def get_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        for sandbox in self.sandboxes.values():
            named = sandbox.name == ref and sandbox.owner_uid == caller.uid
            if caller.may_see(sandbox.owner_uid) and (sandbox.id == ref or named):
                return sandbox
        raise SandboxNotFound(f"cannot find sandbox {ref!r}")

    def list_sandboxes(self, caller: Caller) -> list[Sandbox]:
        return [box for box in self.sandboxes.values() if caller.may_see(box.owner_uid)]

    async def usage(self, caller: Caller, ref: str, *, by_execution: bool = False) -> SandboxReport:
        sandbox = self.get_sandbox(caller, ref)
        pressure = {"cpu": Pressure((1.5, 0.0, 0.0), 2.0)}
        used = SandboxUsage(memory_bytes=1 << 20, cpu_seconds=0.5, pressure=pressure)
        each = {"aaaaaaaaaaaa": used} if by_execution else None
        return SandboxReport(
            sandbox, used, executions_running=0, executions_total=1, by_execution=each
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
        self._fail()
        sandbox = self.get_sandbox(caller, ref)
        self.requests.append((changes, metadata, lifetime_seconds, idle_timeout_seconds, force))
        sandbox.limits = sandbox.limits.with_changes(changes)
        if metadata is not None:
            sandbox.metadata = metadata
        return sandbox

    async def release_sandbox(self, caller: Caller, ref: str) -> None:
        self._fail()
        self.get_sandbox(caller, ref).state = SandboxState.RELEASED

    async def suspend_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        self._fail()
        sandbox = self.get_sandbox(caller, ref)
        sandbox.state = SandboxState.SUSPENDED
        return sandbox

    async def resume_sandbox(self, caller: Caller, ref: str) -> Sandbox:
        self._fail()
        sandbox = self.get_sandbox(caller, ref)
        sandbox.state = SandboxState.READY
        return sandbox

    async def start_execution(
        self, caller: Caller, ref: str, request: ExecutionRequest
    ) -> Execution:
        self._fail()
        sandbox = self.get_sandbox(caller, ref)
        self.requests.append(request)
        now = self._now()
        execution = Execution(
            id=new_id(),
            sandbox_id=sandbox.id,
            command=request.command,
            limits=sandbox.limits.with_changes(request.limits),
            own_limits=frozenset(request.limits.as_dict()),
            enforcement=self._enforcement(),
            created_at=now,
            started_at=now,
            outcome=Outcome(ExecutionStatus.RUNNING),
        )
        self.executions[execution.id] = execution
        self.outputs[execution.id, "stdout"] = self.stdout
        self.outputs[execution.id, "stderr"] = self.stderr
        self.started.set()
        return execution

    async def run(
        self,
        caller: Caller,
        sandbox: SandboxRequest,
        execution: ExecutionRequest,
        files: tuple[NewFile, ...] = (),
        reading: Reading | None = None,
    ) -> Execution:
        self.written += files
        created = await self.create_sandbox(caller, sandbox)
        started = await self.start_execution(caller, created.id, execution)
        if reading is not None:
            task = asyncio.create_task(self._read(caller, started, reading))
            self.readings.add(task)
        return started

    async def _read(self, caller: Caller, started: Execution, reading: Reading) -> None:
        await self.wait_execution(caller, started.sandbox_id, started.id, None)
        await reading.read(self.home.use)

    def get_execution(self, caller: Caller, ref: str, execution_id: str) -> Execution:
        sandbox = self.get_sandbox(caller, ref)
        execution = self.executions.get(execution_id)
        if execution is None or execution.sandbox_id != sandbox.id:
            raise ExecutionNotFound(f"cannot find execution {execution_id!r}")
        return execution

    def list_executions(self, caller: Caller, ref: str | None = None) -> list[Execution]:
        only = None if ref is None else self.get_sandbox(caller, ref).id
        seen = {sandbox.id for sandbox in self.list_sandboxes(caller)}
        return [
            execution
            for execution in self.executions.values()
            if execution.sandbox_id in seen and only in (None, execution.sandbox_id)
        ]

    async def wait_execution(
        self, caller: Caller, ref: str, execution_id: str, timeout_seconds: float | None
    ) -> Execution:
        execution = self.get_execution(caller, ref, execution_id)
        self.waited.set()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.hold.wait()
        except TimeoutError:
            return execution
        if not execution.is_finished:
            self.finish(execution, Outcome(ExecutionStatus.EXITED, exit_code=0))
        return execution

    def finish(self, execution: Execution, outcome: Outcome) -> None:
        execution.outcome = outcome
        execution.finished_at = self._now()
        execution.usage = replace(Usage(), wall_seconds=1.0)
        for name in ("stdout", "stderr"):
            size = len(self.outputs[execution.id, name])
            setattr(execution, name, OutputSummary(size))
        self.tell(execution.id)

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
        self._fail()
        execution = self.get_execution(caller, ref, execution_id)
        if execution.is_finished:
            raise ExecutionFinished("cannot kill the execution: it has ended")
        self.requests.append((signal, grace_seconds))
        self.signalled.set()
        if signal is None:
            outcome = Outcome(ExecutionStatus.KILLED, ErrorCode.KILLED_BY_CALLER)
            self.finish(execution, outcome)
        return execution

    async def write_input(
        self,
        caller: Caller,
        ref: str,
        execution_id: str,
        chunks: AsyncIterator[bytes],
        progress: Progress,
    ) -> None:
        self._fail()
        execution = self.get_execution(caller, ref, execution_id)
        if not execution.command.stdin_open and execution.command.tty is None:
            raise StdinClosed("cannot write to standard input: it is closed")
        async for chunk in chunks:
            await self.may_write.wait()
            self.fed[execution.id] = self.fed.get(execution.id, b"") + chunk
            progress.written_bytes += len(chunk)

    async def close_input(self, caller: Caller, ref: str, execution_id: str) -> None:
        self._fail()
        self.requests.append(("close", self.get_execution(caller, ref, execution_id).id))

    async def resize_terminal(
        self, caller: Caller, ref: str, execution_id: str, size: TerminalSize
    ) -> None:
        self._fail()
        self.get_execution(caller, ref, execution_id)
        self.requests.append(size)

    async def read_output(
        self, execution: Execution, stream: Stream, offset: int, size: int
    ) -> bytes:
        return self.outputs[execution.id, stream][offset : offset + size]

    async def output_times(self, execution: Execution, stream: Stream) -> OutputTimes | None:
        return None

    def print(self, execution_id: str, stream: Stream, data: bytes) -> None:
        """Have an execution print something."""
        self.outputs[execution_id, stream] += data
        self.tell(execution_id)

    def tell(self, execution_id: str) -> None:
        """Wake whoever follows it."""
        for news in self.followers.get(execution_id, ()):
            news.set()

    @contextmanager
    def follow(self, caller: Caller, ref: str, execution_id: str) -> Iterator[asyncio.Event]:
        execution = self.get_execution(caller, ref, execution_id)
        news = asyncio.Event()
        followers = self.followers.setdefault(execution.id, [])
        followers.append(news)
        self.followed.set()
        try:
            yield news
        finally:
            followers.remove(news)
            self.unfollowed.set()

    @asynccontextmanager
    async def files(self, caller: Caller, ref: str) -> AsyncIterator[SandboxFiles]:
        """The real ones, in a directory that is empty at first, as this process's own uid."""
        self._fail()
        self.get_sandbox(caller, ref)
        workers = Workers("files", threads=1)
        with tempfile.TemporaryDirectory() as directory:
            for name in ("home", "staging"):
                os.mkdir(os.path.join(directory, name))
            home, staging = (os.path.join(directory, name) for name in ("home", "staging"))
            try:
                yield HomeFiles(Place(home, staging, os.getuid(), workers, _remove, _take, _TURN))
            finally:
                workers.close()


_TURN = Turn(0, "a")


async def _take(size: int) -> None:
    """There is always room."""


async def _remove(path: str) -> None:
    remove_tree(path)


def no_room() -> SandboxdError:
    """The refusal of a full host."""
    return CapacityExceeded(
        "cannot reserve 1 GiB of memory: less is free",
        hint="release a sandbox",
        details={"budget_bytes": 8 << 30, "asked_bytes": 1 << 30},
        of_others={"committed_bytes": 8 << 30},
    )
