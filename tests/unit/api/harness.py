# SPDX-License-Identifier: Apache-2.0
"""The real server and engine on a Unix socket, over fakes of the engine's ports, and a client that
hides nothing."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from sandboxd.api.server import serving
from sandboxd.core.levels import Findings, offers
from sandboxd.core.model import Caller, EventType, Execution, LimitChanges, Pressure, SandboxUsage
from sandboxd.core.policy import Budget, TaskBudget
from sandboxd.engine.engine import Engine
from sandboxd.engine.requests import CgroupReport, SandboxRequest
from sandboxd.osutil.privileges import of_this_process
from sandboxd.records.keys import DiskKeys
from sandboxd.workspace.workers import Workers
from tests.unit.fakes.engine import running_engine
from tests.unit.fakes.programs import Program, always
from tests.unit.fakes.shims import FakeShim
from tests.unit.fakes.world import Disk, World

ADMIN = Caller(0, 0, 1, is_admin=True)
OUTPUT = b"out\n"
LARGE = Budget(1 << 40, 0)
SETTINGS: dict[str, Any] = {
    "tasks": TaskBudget(1 << 15, "kernel.pid_max"),
    "offers": offers(Findings(is_root=True, kernel_limits=True), "auto"),
    "cgroup": CgroupReport("auto", "v2", "delegated"),
    "max_executions": 64,
}


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error's body, once its form is checked."""
        assert self.headers["content-type"].startswith("application/json"), self
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {
            "code", "message", "hint", "retryable", "details", "request_id",
        }  # fmt: skip
        assert error["request_id"] == self.headers["x-request-id"]
        assert "Traceback" not in self.body.decode()
        assert error["message"].startswith("cannot ")
        return error


@dataclass(frozen=True)
class Served:
    """A server at a socket, with what is behind and in front of the API."""

    engine: Engine
    world: World
    path: str
    session: aiohttp.ClientSession

    def commands(
        self, stdout: bytes = OUTPUT, stderr: bytes = b"", *, seconds: float | None = 0.0
    ) -> None:
        """From now on each command prints this, and ends after so long; None = by `end`."""
        self.world.programs = always(Program(stdout, stderr, seconds=seconds))

    @property
    def executions(self) -> list[Execution]:
        """All executions, oldest first."""
        return self.engine.list_executions(ADMIN)

    @property
    def shims(self) -> list[FakeShim]:
        """Those of all executions, oldest first."""
        return list(self.world.shims.values())

    def end(self) -> None:
        """Let every running command exit."""
        for shim in self.shims:
            shim.finish()

    async def started(self, count: int = 1) -> FakeShim:
        """The latest execution's, once so many have been started."""
        channel = self.engine.events.channel(ADMIN)
        async with asyncio.timeout(30):
            while True:
                last = channel.last
                told = [event for _, event in channel.after(0, 1000)]
                ids = [e.execution_id for e in told if e.type is EventType.EXECUTION_STARTED]
                if len(ids) >= count:
                    return self.world.shims[str(ids[-1])]
                await channel.wait_beyond(last)

    async def fill(self) -> str:
        """Promise all memory of the host to a new sandbox, and return its id."""
        free = LimitChanges(memory_bytes=self.engine.host().capacity.free_bytes)
        return (await self.engine.create_sandbox(ADMIN, SandboxRequest(limits=free))).id

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Answered:
        """One request; `body` is sent as JSON unless it is bytes or a file."""
        is_raw = body is None or isinstance(body, bytes | io.BytesIO)
        data = body if is_raw else io.BytesIO(json.dumps(body).encode())
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        async with self.session.request(
            method, f"http://localhost{path}", data=data, headers=headers, **options
        ) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answered(response.status, headers, await response.read())

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection."""
        return await asyncio.open_unix_connection(self.path)

    async def send(self, data: bytes) -> bytes:
        """Everything the server says to `data` before it closes the connection."""
        reader, writer = await self.connect()
        writer.write(data)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        return answer


@contextmanager
def a_world(directory: str) -> Iterator[World]:
    """A world with files below `directory`, in which commands end at once."""
    world = World()
    world.programs = always(Program(OUTPUT))
    pressure = {"cpu": Pressure((1.5, 0.0, 0.0), 2.0)}
    world.usage = SandboxUsage(memory_bytes=1 << 20, cpu_seconds=0.5, pressure=pressure)
    workers = Workers("files", of_this_process(), threads=1)
    world.disk = Disk(directory, workers)
    try:
        yield world
    finally:
        workers.close()


@asynccontextmanager
async def serving_world(
    world: World,
    directory: str,
    *,
    budget: Budget = LARGE,
    admin_gids: Collection[int] = (),
) -> AsyncIterator[Served]:
    """An engine over the world, served at a socket in `directory` until the end of the context."""
    path = str(Path(directory, "s"))
    with suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    keys = DiskKeys(directory)
    keys.open()
    connector = aiohttp.UnixConnector(path)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        running_engine(world, budget=budget, **SETTINGS) as engine,
        serving(engine, [listener], keys=keys, own_uid=os.geteuid(), admin_gids=admin_gids),
    ):
        yield Served(engine, world, path, session)


@asynccontextmanager
async def served(
    *, budget: Budget = LARGE, admin_gids: Collection[int] = ()
) -> AsyncIterator[Served]:
    """A host of nobody else's, served."""
    with tempfile.TemporaryDirectory() as directory, a_world(directory) as world:
        async with serving_world(world, directory, budget=budget, admin_gids=admin_gids) as server:
            yield server
