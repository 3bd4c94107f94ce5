# SPDX-License-Identifier: Apache-2.0
"""A private dbus-daemon with a scripted org.freedesktop.systemd1 on it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

SYSTEMD = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={path}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
  <limit name="max_replies_per_connection">{replies}</limit>
</busconfig>
"""

Answer = Callable[["FakeSystemd", Message], Awaitable[None]]


class PrivateBus:
    """A dbus-daemon of a test's own; `kill` and `start` as often as wanted."""

    def __init__(self, directory: Path, replies: int = 128) -> None:
        self.socket = directory / "bus"
        self.address = f"unix:path={self.socket}"
        self._config = directory / "bus.conf"
        self._config.write_text(CONFIG.format(path=self.socket, replies=replies))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        program = shutil.which("dbus-daemon")
        assert program is not None
        self._process = await asyncio.create_subprocess_exec(
            program, f"--config-file={self._config}", "--nofork", "--print-address",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        # It prints its address once it listens.
        assert await self._process.stdout.readline()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


class FakeSystemd:
    """Answers each manager call by the script; knows the units it was told of."""

    def __init__(self, address: str, script: Answer) -> None:
        self._address = address
        self._script = script
        self.calls: list[str] = []
        self.units: dict[str, tuple[str, str, str]] = {}
        self._called = asyncio.Event()
        self._jobs = 0
        self._stopped = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._bus = MessageBus(bus_address=self._address, negotiate_unix_fd=True)
        await self._bus.connect()
        self._bus.add_message_handler(self._handle)
        await self._bus.request_name(SYSTEMD)

    async def leave(self) -> None:
        """Give the name up, as systemd does for a moment when it executes itself anew."""
        await self._bus.release_name(SYSTEMD)

    async def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await disconnect(self._bus)

    async def until_called(self, member: str, count: int) -> None:
        """Wait until a method has been called so often."""
        while self.calls.count(member) < count:
            self._called.clear()
            await self._called.wait()

    def new_job(self) -> str:
        self._jobs += 1
        return f"{PATH}/job/{self._jobs}"

    def reply(self, message: Message, signature: str, *body: Any) -> None:
        self._send(Message.new_method_return(message, signature, list(body)))

    def error(self, message: Message, name: str, text: str = "no") -> None:
        self._send(Message.new_error(message, name, text))

    def remove_job(self, job: str, unit: str, result: str = "done") -> None:
        number = int(job.rpartition("/")[2])
        self._send(Message(
            message_type=MessageType.SIGNAL, path=PATH, interface=f"{SYSTEMD}.Manager",
            member="JobRemoved", signature="uoss", body=[number, job, unit, result],
        ))  # fmt: skip

    def _send(self, message: Message) -> None:
        self._bus.send(message)

    def _handle(self, message: Message) -> bool:
        if message.message_type is not MessageType.METHOD_CALL or message.path != PATH:
            return False
        self.calls.append(str(message.member))
        self._called.set()
        if message.member == "ListUnitsByNames":
            rows = [self._row(name) for name in message.body[0]]
            self.reply(message, "a(ssssssouso)", rows)
        elif message.member == "Get":
            values = {"Version": "257.9-1", "ControlGroup": ""}
            self.reply(message, "v", Variant("s", values[message.body[1]]))
        else:
            task = asyncio.ensure_future(self._script(self, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    def _row(self, name: str) -> list[Any]:
        load, active, job = self.units.get(name, ("not-found", "inactive", "/"))
        return [name, name, load, active, active, "", f"{PATH}/unit/x", 0, "", job]


async def disconnect(bus: MessageBus) -> None:
    """End a connection of a test's own, descriptor included."""
    bus.disconnect()
    with suppress(OSError, EOFError):
        await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
    for file in (bus._stream, bus._sock):
        if file is not None:
            file.close()


@asynccontextmanager
async def scripted(
    directory: Path, script: Answer, *, replies: int = 128
) -> AsyncIterator[tuple[PrivateBus, FakeSystemd]]:
    bus = PrivateBus(directory, replies)
    await bus.start()
    systemd = FakeSystemd(bus.address, script)
    try:
        await systemd.start()
        yield bus, systemd
        await systemd.stop()
    finally:
        await bus.kill()
