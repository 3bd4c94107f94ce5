# SPDX-License-Identifier: Apache-2.0
"""The daemon's handle on one shim: orders, events, and the pidfd that reports the shim's end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from sandboxd.core.model import ErrorCode
from sandboxd.core.outcome import Facts
from sandboxd.errors import ExecutionFinished, OperationTimedOut, SchemeError
from sandboxd.launch import reports
from sandboxd.launch.descent import end_with_descendants
from sandboxd.launch.failures import not_started
from sandboxd.launch.inputs import InputPipe
from sandboxd.launch.packets import Packets
from sandboxd.osutil.pidfd import kill
from sandboxd.protocol.codec import Malformed
from sandboxd.protocol.link import (
    EVENTS,
    ORDERS,
    Answered,
    CloseInput,
    Ended,
    Event,
    Failed,
    Freeze,
    Frozen,
    Go,
    Kill,
    Order,
    Ready,
    Resize,
    SendSignal,
    ShareInput,
    Started,
    Thaw,
    Thawed,
)

_READY_SECONDS = 30.0
_START_SECONDS = 90.0
_FREEZE_SECONDS = 10.0
_EXIT_SECONDS = 10.0
_DESCENT_SECONDS = 2.0
# A shim greets every connection.
_GREETING_SECONDS = 5.0
_ANSWER_SECONDS = 15.0

_Answer = tuple[Answered, list[int]]
_log = logging.getLogger(__name__)


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
        self._events: dict[type[Event], Event] = {}
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
        event = await self._wait_for((Ready,), _READY_SECONDS)
        if not isinstance(event, Ready):
            raise SchemeError("cannot start the execution: its shim ended at once")
        self.missing = event.missing

    async def go(self) -> datetime:
        self._send(Go())
        event = await self._wait_for((Started, Failed), _START_SECONDS)
        if isinstance(event, Failed):
            raise not_started(event, self.subjects)
        if not isinstance(event, Started):
            raise SchemeError("cannot start the execution: its shim ended before the command ran")
        return datetime.fromtimestamp(event.at, UTC)

    async def started(self) -> datetime | None:
        with suppress(OperationTimedOut):
            event = await self._wait_for((Started, Failed, Ready), _GREETING_SECONDS)
            if isinstance(event, Started):
                return datetime.fromtimestamp(event.at, UTC)
        return None

    async def abort(self) -> None:
        """Give up before `go` (or after a failed one); returns when the shim is gone."""
        self._packets.close()
        self._connected = False
        if not await self.gone(timeout_seconds=_EXIT_SECONDS):
            await self.destroy()
            await self.gone(timeout_seconds=_EXIT_SECONDS)
        self._forget()

    async def kill(self, code: ErrorCode, *, grace_seconds: float) -> bool:
        return self._send(Kill(code.value, grace_seconds))

    async def signal(self, number: int, *, group: bool) -> None:
        self._send(SendSignal(number, group))

    async def destroy(self) -> None:
        if self.pidfd < 0:
            return
        if self.pid_namespace:
            kill(self.pidfd)
            return
        # The thread's own: the descriptor is closed at the shim's end.
        fd = os.dup(self.pidfd)
        if not await asyncio.to_thread(
            end_with_descendants, self.pid, fd, timeout_seconds=_DESCENT_SECONDS
        ):
            _log.error("A process below the shim %d does not die", self.pid)

    async def freeze(self) -> None:
        await self._order(Freeze(), Frozen)

    async def thaw(self) -> None:
        await self._order(Thaw(), Thawed)

    async def input(self) -> InputPipe | None:
        if self._input is None:
            answer, fds = await self._ask(ShareInput, "input")
            if fds:
                self._input = InputPipe(fds[0], is_terminal=answer.is_terminal)
        return self._input

    async def close_input(self) -> None:
        if self._input is not None:
            self._input.close()
            self._input = None
        await self._ask(CloseInput, "close input")

    async def resize(self, rows: int, cols: int) -> None:
        await self._ask(partial(Resize, rows=rows, cols=cols), "resize")

    async def ended(self) -> Facts | None:
        if await self._wait_for((Ended,), None) is None:
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

    def _send(self, order: Order) -> bool:
        return self._packets.send(ORDERS.encode(order))

    async def _order(self, order: Order, answer: type[Event]) -> None:
        self._events.pop(answer, None)
        self._send(order)
        # A shim that ended meanwhile has no processes left to stop.
        await self._wait_for((answer, Ended), _FREEZE_SECONDS)

    async def _ask(self, order_of: Callable[[int], Order], what: str) -> _Answer:
        """Return the shim's answer to an order, with descriptors. Raises ExecutionFinished.

        order_of: the order of a number. what: the order in words.
        """
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[_Answer | None] = self._loop.create_future()
        self._answers[number] = answer
        try:
            answered = None
            if Ended not in self._events and self._send(order_of(number)):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    answered = await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                _, fds = answer.result() or (None, [])
                for fd in fds:
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
        self, kinds: tuple[type[Event], ...], timeout_seconds: float | None
    ) -> Event | None:
        """Return the first of these events, past or future; None when the shim left."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    for kind in kinds:
                        if kind in self._events:
                            return self._events[kind]
                    if not self._connected:
                        return None
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as exc:
            names = " or ".join(kind.__name__.lower() for kind in kinds)
            raise OperationTimedOut(
                f"cannot go on with the execution: its shim did not report {names} "
                f"within {timeout_seconds:g} seconds"
            ) from exc

    def _on_packet(self, packet: bytes, fds: list[int]) -> None:
        try:
            event = EVENTS.decode(packet)
        except Malformed as exc:
            _log.error("Cannot use what the shim %d tells: %s", self.pid, exc)
            event = None
        if isinstance(event, Answered):
            answer = self._answers.get(event.id)
            if answer is not None and not answer.done():
                answer.set_result((event, fds))
                return
        for fd in fds:
            os.close(fd)
        if event is None:
            return
        self._events[type(event)] = event
        if isinstance(event, Ended):
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
