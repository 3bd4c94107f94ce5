# SPDX-License-Identifier: Apache-2.0
"""The daemon's one connection to a spawner; a spawner that does not answer is replaced."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from sandboxd.errors import InternalError, SandboxdError
from sandboxd.launch.packets import Packets
from sandboxd.osutil.pidfd import kill, open_pidfd
from sandboxd.osutil.seqpacket import connect
from sandboxd.osutil.unix_sockets import credentials
from sandboxd.protocol import spawning
from sandboxd.protocol.codec import Malformed
from sandboxd.protocol.spawning import Done, Greeting, Hello, Refused, Request, Stop, Supervise

# A fork takes milliseconds, and all starts wait behind a hanging spawner.
_ANSWER_SECONDS = 5.0
_START_SECONDS = 30.0
_END_SECONDS = 3.0
_RETRY_SECONDS = 0.01

_log = logging.getLogger(__name__)
_Wanted = TypeVar("_Wanted")
_Packet = tuple[bytes, list[int]]


class SpawnerUnreachable(SandboxdError):
    """Raised when no spawner answers; what was asked for was not done, or will be given up."""

    retryable = True


class SpawnerConnection:
    """A connection to one spawner at a time, for one question at a time.

    start: makes a spawner listen on the given path, when none does.
    """

    def __init__(self, path: str, start: Callable[[str], Awaitable[None]]) -> None:
        self.path = path
        self._start = start
        self._packets: Packets | None = None
        self._pidfd = -1
        self._answer: asyncio.Future[_Packet] | None = None
        self._lock = asyncio.Lock()
        self._ended = asyncio.Event()
        self._supervisor: Supervise | None = None
        self._is_missing = True
        self._has_replaced = False
        # Whether this object started the spawner, since none was there.
        self.has_started = False

    async def open(self) -> None:
        """Connect, after starting a spawner where none answers. Raises SpawnerUnreachable."""
        async with self._lock:
            await self._ensure_connected()

    async def ask(
        self, request: Request, fds: list[int], wanted: type[_Wanted]
    ) -> tuple[_Wanted | Refused, list[int]]:
        """Return the spawner's answer; the caller owns the descriptors.

        Raises SpawnerUnreachable; the next call finds another spawner.
        """
        async with self._lock:
            await self._ensure_connected()
            packet, received = await self._exchange(request, fds)
            try:
                answer = spawning.ANSWERS.decode(packet)
            except Malformed as exc:
                self._give_up_on(received)
                raise SpawnerUnreachable(f"cannot use the spawner: {exc}") from exc
            if not isinstance(answer, wanted | Refused):
                self._give_up_on(received)
                raise SpawnerUnreachable(f"cannot use the spawner: it answered {answer}")
            return answer, received

    async def check(self) -> None:
        """Check that the spawner answers. Raises SpawnerUnreachable when none could be started."""
        if self._lock.locked():
            # A question under way has a deadline of its own.
            return
        with suppress(SpawnerUnreachable):
            await self.ask(Hello(), [], Greeting)
            return
        await self.open()

    async def supervise(self, argv: list[str]) -> None:
        """Have the spawner, and each successor, keep this program running."""
        self._supervisor = request = Supervise(tuple(argv))
        try:
            answer, _ = await self.ask(request, [], Done)
        except SpawnerUnreachable:
            answer, _ = await self.ask(request, [], Done)
        if isinstance(answer, Refused):
            raise InternalError(f"cannot start the supervisor: {answer.text}")

    async def stop(self) -> None:
        """Have the spawner end, and wait for the end for up to three seconds; the shims go on."""
        async with self._lock:
            # A question that was broken off has taken the connection along.
            if self._packets is not None or await self._try_connect():
                self._ended.clear()
                with suppress(SpawnerUnreachable):
                    await self._exchange(Stop(), [])
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_END_SECONDS):
                            await self._ended.wait()
            self.close()

    def close(self) -> None:
        """Close the connection; the spawner goes on."""
        if self._packets is not None:
            self._packets.close()
            self._packets = None
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    # -- private, under the lock

    async def _ensure_connected(self) -> None:
        if self._packets is not None:
            return
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        self._is_missing = True
        while not await self._try_connect():
            if asyncio.get_running_loop().time() > deadline:
                raise SpawnerUnreachable(
                    f"cannot reach the spawner on {self.path}: it did not start"
                )
            if self._is_missing:
                await self._start(self.path)
                self._is_missing = False
                self.has_started = not self._has_replaced
            await asyncio.sleep(_RETRY_SECONDS)
        if self._supervisor is not None:
            await self._exchange(self._supervisor, [])

    async def _try_connect(self) -> bool:
        self.close()
        try:
            connection = connect(self.path)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            return False
        try:
            self._pidfd = open_pidfd(credentials(connection).pid)
        except ProcessLookupError:
            connection.close()
            return False
        self._packets = Packets(connection, self._on_answer, self._on_end)
        try:
            greeting, _ = await self._exchange(Hello(), [])
            if spawning.is_of_this_protocol(greeting):
                return True
            # A spawner of another version must end; its shims need no spawner.
            self._is_missing = self._has_replaced = True
            await self._exchange(Stop(), [])
        except SpawnerUnreachable:
            return False
        self.close()
        return False

    async def _exchange(self, request: Request, fds: list[int]) -> _Packet:
        packets = self._packets
        if packets is None or not packets.send(spawning.REQUESTS.encode(request), fds):
            raise SpawnerUnreachable("cannot start a shim: the spawner went away")
        # The loop reads the answer, and so not before this coroutine waits.
        self._answer = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._answer
        except TimeoutError as exc:
            self._replace_silent()
            raise SpawnerUnreachable("cannot start a shim: the spawner does not answer") from exc
        except asyncio.CancelledError:
            # An answer that comes later would be taken for that to the next question.
            self.close()
            raise
        finally:
            self._answer = None

    def _give_up_on(self, received: list[int]) -> None:
        """Close the connection after an answer that is none, and the answer's descriptors."""
        for fd in received:
            os.close(fd)
        self.close()

    def _replace_silent(self) -> None:
        """Send SIGKILL to a hanging spawner, which would keep listening; shims do not notice."""
        _log.error("The spawner did not answer for %g seconds: replacing it", _ANSWER_SECONDS)
        kill(self._pidfd)
        self._is_missing = self._has_replaced = True
        self.close()

    def _on_answer(self, packet: bytes, fds: list[int]) -> None:
        if self._answer is None or self._answer.done():
            for fd in fds:
                os.close(fd)
        else:
            self._answer.set_result((packet, fds))

    def _on_end(self) -> None:
        self._packets = None
        self._ended.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(
                SpawnerUnreachable("cannot start a shim: the spawner went away")
            )
