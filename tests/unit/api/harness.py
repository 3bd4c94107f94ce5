# SPDX-License-Identifier: Apache-2.0
"""The real server on a Unix socket with the fake engine, and a client that hides nothing."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from sandboxd.api.server import serving
from sandboxd.records.keys import DiskKeys
from tests.unit.api.fake_engine import FakeEngine


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
    engine: FakeEngine
    path: str
    session: aiohttp.ClientSession

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


@asynccontextmanager
async def served(admin_gids: Collection[int] = ()) -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "s"))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        engine = FakeEngine()
        keys = DiskKeys(directory)
        keys.open()
        connector = aiohttp.UnixConnector(path)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            serving(engine, [listener], keys=keys, admin_gids=admin_gids),
        ):
            yield Served(engine, path, session)
