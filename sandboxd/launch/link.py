# SPDX-License-Identifier: Apache-2.0
"""The daemon's handle on one shim: orders, events, and the pidfd that reports the shim's end."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from sandboxd.core.model import ErrorCode
from sandboxd.core.outcome import Facts
from sandboxd.errors import ExecutionFinished, OperationTimedOut, SchemeError
from sandboxd.launch import reports
from sandboxd.launch.failures import not_started
from sandboxd.launch.inputs import InputPipe
from sandboxd.launch.packets import Packets
from sandboxd.osutil import objects
from sandboxd.osutil.pidfd import kill

_READY_SECONDS = 30.0
_START_SECONDS = 90.0
_FREEZE_SECONDS = 10.0
_EXIT_SECONDS = 10.0
# A shim greets every connection.
_GREETING_SECONDS = 5.0
_ANSWER_SECONDS = 15.0

_Answer = tuple[dict[str, Any], list[int]]


class ShimLink:
    """One shim; fits ports.launch.Shim."""

    def __init__(
        self,
        connection: socket.socket,
        pid: int,
        pidfd: int,
        record_directory: str,
        control_directory: str,
        *,
        pid_namespace: bool,
    ) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.pid_namespace = pid_namespace
        self.missing: tuple[str, ...] = ()
        # By step, the subject of an error message.
        self.subjects: Mapping[str, str] = {}
        self._record_directory = record_directory
        self.evidence_directory = control_directory
        self._events: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Event()
        self._connected = True
        self._gone = asyncio.Event()
        self._packets = Packets(connection, self._on_packet, self._on_end)
        self._asked = 0
        self._answers: dict[int, asyncio.Future[_Answer | None]] = {}
        self._input: InputPipe | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(pidfd, self._on_gone)

    async def ready(self) -> None:
        """Wait until the shim can be placed."""
        event = await self._wait_for(("ready",), _READY_SECONDS)
        if event is None:
            raise SchemeError("cannot start the execution: its shim ended at once")
        self.missing = tuple(event["missing"])

    async def go(self) -> datetime:
        self._send({"op": "go"})
        event = await self._wait_for(("started", "failed"), _START_SECONDS)
        if event is None:
            raise SchemeError("cannot start the execution: its shim ended before the command ran")
        if event["event"] == "failed":
            raise not_started(event, self.subjects)
        return datetime.fromtimestamp(event["at"], UTC)

    async def started(self) -> datetime | None:
        with suppress(OperationTimedOut):
            event = await self._wait_for(("started", "failed", "ready"), _GREETING_SECONDS)
            if event is not None and event["event"] == "started":
                return datetime.fromtimestamp(event["at"], UTC)
        return None

    async def abort(self) -> None:
        """Give up before `go` (or after a failed one); returns when the shim is gone."""
        self._packets.close()
        self._connected = False
        if not await self.gone(timeout_seconds=_EXIT_SECONDS):
            self.destroy()
            await self.gone(timeout_seconds=_EXIT_SECONDS)
        self._forget()

    async def kill(self, code: ErrorCode, *, grace_seconds: float) -> None:
        self._send({"op": "kill", "code": code.value, "grace_seconds": grace_seconds})

    async def signal(self, number: int, *, group: bool) -> None:
        self._send({"op": "signal", "signal": number, "group": group})

    def destroy(self) -> None:
        kill(self.pidfd)

    async def freeze(self) -> None:
        await self._order({"op": "freeze"}, "frozen")

    async def thaw(self) -> None:
        await self._order({"op": "thaw"}, "thawed")

    async def input(self) -> InputPipe | None:
        if self._input is None:
            answer, fds = await self._ask({"op": "input"})
            if fds:
                self._input = InputPipe(fds[0], is_terminal=answer["is_terminal"])
        return self._input

    async def close_input(self) -> None:
        if self._input is not None:
            self._input.close()
            self._input = None
        await self._ask({"op": "close_input"})

    async def resize(self, rows: int, cols: int) -> None:
        await self._ask({"op": "resize", "rows": rows, "cols": cols})

    async def ended(self) -> Facts | None:
        if await self._wait_for(("ended",), None) is None:
            await self._gone.wait()
        return reports.read_facts(self._record_directory)

    async def gone(self, *, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._gone.wait()
        except TimeoutError:
            return False
        self._forget()
        return True

    # -- private

    def _send(self, order: dict[str, Any]) -> bool:
        return self._packets.send(objects.encode(order))

    async def _order(self, order: dict[str, Any], answer: str) -> None:
        self._events.pop(answer, None)
        self._send(order)
        # A shim that ended meanwhile has no processes left to stop.
        await self._wait_for((answer, "ended"), _FREEZE_SECONDS)

    async def _ask(self, order: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Return the shim's answer to an order, with descriptors. Raises ExecutionFinished."""
        what = order["op"].replace("_", " ")
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[_Answer | None] = self._loop.create_future()
        self._answers[number] = answer
        try:
            answered = None
            if "ended" not in self._events and self._send({**order, "id": number}):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    answered = await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                for fd in (answer.result() or ({}, []))[1]:
                    os.close(fd)
            raise
        except TimeoutError as exc:
            raise OperationTimedOut(
                f"cannot reach the execution ({what}): its shim did not answer "
                f"within {_ANSWER_SECONDS:g} seconds"
            ) from exc
        finally:
            del self._answers[number]
        if answered is None:
            raise ExecutionFinished(f"cannot reach the execution ({what}): it has ended")
        return answered

    async def _wait_for(
        self, names: tuple[str, ...], timeout_seconds: float | None
    ) -> dict[str, Any] | None:
        """Return the first of these events, past or future; None when the shim left."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    for name in names:
                        if name in self._events:
                            return self._events[name]
                    if not self._connected:
                        return None
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as exc:
            raise OperationTimedOut(
                f"cannot go on with the execution: its shim did not report {' or '.join(names)} "
                f"within {timeout_seconds:g} seconds"
            ) from exc

    def _on_packet(self, packet: bytes, fds: list[int]) -> None:
        event = objects.decode(packet)
        answer = self._answers.get(event.get("id", 0))
        if answer is not None and not answer.done():
            answer.set_result((event, fds))
            return
        for fd in fds:
            os.close(fd)
        self._events[event["event"]] = event
        if event["event"] == "ended":
            self._end_input()
        self._changed.set()

    def _on_end(self) -> None:
        self._connected = False
        self._end_input()
        self._changed.set()

    def _end_input(self) -> None:
        """Fail pending orders and close the input: the shim is gone."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)
        if self._input is not None:
            self._input.close()
            self._input = None

    def _on_gone(self) -> None:
        self._loop.remove_reader(self.pidfd)
        self._gone.set()

    def _forget(self) -> None:
        """Close all descriptors of a shim that is gone; calling twice is harmless."""
        if self.pidfd >= 0 and self._gone.is_set():
            os.close(self.pidfd)
            self.pidfd = -1
            self._packets.close()
            self._end_input()
            shutil.rmtree(self.evidence_directory, ignore_errors=True)
