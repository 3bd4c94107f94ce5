# SPDX-License-Identifier: Apache-2.0
"""A supervisor that cannot do as it is told says so: the daemon then starts nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandboxd.launch.supervisor import NotSupervised, SupervisorClient
from sandboxd.osutil.files import write_whole
from sandboxd.protocol.dialogue import Stop
from sandboxd.protocol.supervision import Caps, State

STATE = State("abcdefghijkl", None, Caps(memory_bytes=64 << 20))


@asynccontextmanager
async def supervisor(tmp_path: Path) -> AsyncIterator[SupervisorClient]:
    """A supervisor of a directory of its own."""
    started: list[subprocess.Popen[bytes]] = []

    async def start(argv: list[str]) -> None:
        if not started:
            started.append(subprocess.Popen(argv))  # noqa: ASYNC220 - it is over in a moment

    made = SupervisorClient(str(tmp_path), start)
    await made.open()
    try:
        yield made
    finally:
        await made.tell(Stop())
        made.close()
        for process in started:
            process.wait(timeout=30)


@pytest.mark.parametrize("torn", [b"", b'{"protocol":1,"sandbox":"abcdefghijkl","exec'])
async def test_a_torn_state_is_not_in_force(tmp_path: Path, torn: bytes) -> None:
    async with supervisor(tmp_path) as client:
        client.write(STATE)
        await client.load(STATE.sandbox)
        write_whole(os.path.join(client.directory.path, f"{STATE.sandbox}.json"), torn)
        with pytest.raises(NotSupervised, match="cannot supervise sandbox abcdefghijkl"):
            await client.load(STATE.sandbox)
        client.write(STATE)
        await client.load(STATE.sandbox)


async def test_nor_is_one_that_is_gone(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as client:
        client.write(STATE)
        client.directory.remove(STATE.sandbox)
        with pytest.raises(NotSupervised, match="no file"):
            await client.load(STATE.sandbox)
