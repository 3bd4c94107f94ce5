# SPDX-License-Identifier: Apache-2.0
"""The connection to a spawner that is slow, hangs, dies or speaks another protocol."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sandboxd.launch import connection as module
from sandboxd.launch.connection import SpawnerConnection, SpawnerUnreachable
from sandboxd.protocol.records import PROTOCOL
from sandboxd.protocol.spawning import Greeting, Hello, Spawn, Spawned

# Greets whatever it is asked, with the protocol it is told.
FAKE = """
import contextlib, json, os, socket, sys
path, protocol = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
    if os.path.exists(path):
        os.unlink(path)
    listener.bind(path)
    listener.listen(4)
    while True:
        peer, _ = listener.accept()
        with contextlib.suppress(OSError):
            while packet := peer.recv(4096):
                if json.loads(packet)["op"] == "stop":
                    sys.exit()
                answer = {"answer": "greeting", "protocol": protocol, "pid": os.getpid()}
                answer["shims"] = 0
                peer.send(json.dumps(answer).encode())
"""


class Fakes:
    """Spawners of a test, started one after another."""

    def __init__(self, path: str, protocols: list[int]) -> None:
        self.path = path
        self._protocols = protocols
        self.processes: list[subprocess.Popen[bytes]] = []

    async def start(self, path: str) -> None:
        protocol = self._protocols.pop(0) if self._protocols else PROTOCOL
        argv = [sys.executable, "-c", FAKE, path, str(protocol)]
        process = subprocess.Popen(argv)  # noqa: ASYNC220 - returns after the fork
        self.processes.append(process)


@asynccontextmanager
async def connected(
    tmp_path: Path, *protocols: int
) -> AsyncIterator[tuple[SpawnerConnection, Fakes]]:
    fakes = Fakes(str(tmp_path / "spawner.sock"), list(protocols))
    spawner = SpawnerConnection(fakes.path, fakes.start)
    try:
        await spawner.open()
        yield spawner, fakes
    finally:
        spawner.close()
        for process in fakes.processes:
            process.kill()
            process.wait()


async def pid_of(spawner: SpawnerConnection) -> int:
    answer, _ = await spawner.ask(Hello(), [], Greeting)
    assert isinstance(answer, Greeting)
    return answer.pid


async def test_one_that_hangs_is_killed_and_the_next_call_finds_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.5)
    async with connected(tmp_path) as (spawner, fakes):
        first = await pid_of(spawner)
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(SpawnerUnreachable, match="does not answer"):
            await pid_of(spawner)
        assert fakes.processes[0].wait(10) == -signal.SIGKILL
        assert await pid_of(spawner) == fakes.processes[1].pid


async def test_a_check_replaces_one_that_hangs_or_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.5)
    async with connected(tmp_path) as (spawner, fakes):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            before = await pid_of(spawner)
            os.kill(before, number)
            await spawner.check()
            assert await pid_of(spawner) not in (0, before)
        assert len(fakes.processes) == 3


async def test_another_version_s_is_told_to_end(tmp_path: Path) -> None:
    async with connected(tmp_path, 999) as (spawner, fakes):
        assert fakes.processes[0].wait(10) == 0
        assert await pid_of(spawner) == fakes.processes[1].pid


async def test_an_answer_to_another_question_is_none(tmp_path: Path) -> None:
    async with connected(tmp_path) as (spawner, fakes):
        with pytest.raises(SpawnerUnreachable, match="Greeting"):
            await spawner.ask(Spawn(), [], Spawned)
        assert await pid_of(spawner) == fakes.processes[0].pid


async def test_a_question_that_is_broken_off_does_not_answer_the_next_one(tmp_path: Path) -> None:
    async with connected(tmp_path) as (spawner, fakes):
        os.kill(fakes.processes[0].pid, signal.SIGSTOP)
        asked = asyncio.ensure_future(pid_of(spawner))
        await asyncio.sleep(0)
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        os.kill(fakes.processes[0].pid, signal.SIGCONT)
        assert await pid_of(spawner) == fakes.processes[0].pid
        await spawner.stop()
        assert fakes.processes[0].wait(10) == 0


async def test_one_is_told_to_end_after_a_question_was_broken_off(tmp_path: Path) -> None:
    async with connected(tmp_path) as (spawner, fakes):
        asked = asyncio.ensure_future(pid_of(spawner))
        await asyncio.sleep(0)
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        await spawner.stop()
        assert fakes.processes[0].wait(10) == 0
