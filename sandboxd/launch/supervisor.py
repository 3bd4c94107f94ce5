# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of the supervisor: writes the wanted state, rings, and waits for the answer."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from sandboxd.errors import SandboxdError, host_lacks
from sandboxd.osutil import seqpacket
from sandboxd.osutil.unix_sockets import credentials
from sandboxd.protocol import dialogue
from sandboxd.protocol.codec import Codec, Malformed
from sandboxd.protocol.dialogue import (
    AskExecutions,
    AskMemory,
    AskUsage,
    Greeting,
    Hello,
    Kill,
    LiveUsage,
    Load,
    Order,
    Stop,
    Sweep,
)
from sandboxd.protocol.evidence import SOCKET_NAME
from sandboxd.protocol.supervision import State, StateDirectory

_ANSWER_SECONDS = 5.0
_START_SECONDS = 15.0
_RETRY_SECONDS = 0.02
_QUICK_SECONDS = 0.5
# Usage of all of a sandbox's executions is the largest.
_MAX_PACKET_BYTES = 64 << 10

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class SupervisorUnreachable(SandboxdError):
    """Raised when no supervisor answers: no process would hold limits on a sum."""

    retryable = True


class NotSupervised(SandboxdError):
    """Raised when the supervisor cannot follow a file: a limit on a sum would not be held."""

    retryable = True


def supervisor_argv(runtime_directory: str) -> list[str]:
    """Return the command line that starts a supervisor."""
    script = str(Path(__file__).parents[1] / "supervisor/__main__.py")
    return [sys.executable, "-I", "-S", script, runtime_directory]


class SupervisorClient:
    """A client of the supervisor. start: keeps a supervisor running."""

    def __init__(
        self, runtime_directory: str, start: Callable[[list[str]], Awaitable[None]]
    ) -> None:
        self.directory = StateDirectory(runtime_directory)
        self._runtime = runtime_directory
        self._path = os.path.join(runtime_directory, SOCKET_NAME)
        self._start = start
        self._lock = asyncio.Lock()
        self._connection: socket.socket | None = None

    async def open(self) -> Greeting:
        """Start a supervisor and return its features. Raises SupervisorUnreachable."""
        self.directory.make()
        await self.start()
        greeting = await self._ask(Hello())
        if not dialogue.is_of_this_protocol(greeting):
            # A supervisor of another version; its keeper starts this version's instead.
            await self.tell(Stop())
            greeting = await self._ask(Hello())
        if not dialogue.is_of_this_protocol(greeting):
            raise SupervisorUnreachable("cannot use the supervisor: it is another version's")
        return _read(dialogue.GREETING, greeting)

    async def start(self) -> None:
        """Have a supervisor kept running, without waiting for the start."""
        await self._start(supervisor_argv(self._runtime))

    def close(self) -> None:
        """Close the connection; the supervisor goes on."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def write(self, state: State) -> None:
        """Write the state of a sandbox for the supervisor, whole or not at all.

        Raises the errors of `host_lacks`.
        """
        try:
            self.directory.write(state)
        except OSError as exc:
            what = f"cannot have sandbox {state.sandbox} supervised"
            raise host_lacks(what, exc, self.directory.path) from exc

    async def load(self, sandbox: str) -> None:
        """Have the supervisor follow the sandbox's file; return once the file is in force.

        Raises SupervisorUnreachable and NotSupervised.
        """
        answer = _read(dialogue.LOADED, await self._ask(Load(sandbox)))
        if not answer.ok:
            why = answer.why or f"cannot supervise sandbox {sandbox}: it was refused"
            raise NotSupervised(why)

    async def drop(self, sandbox: str) -> None:
        """Remove the sandbox's file and ring; the file's absence suffices."""
        self.directory.remove(sandbox)
        with suppress(SupervisorUnreachable):
            await self._ask_once(Load(sandbox))

    async def tell(self, order: Kill | Sweep | Stop) -> bool:
        """Whether the supervisor obeyed; False also without a supervisor."""
        with suppress(SupervisorUnreachable):
            return _read(dialogue.OBEYED, await self._ask_once(order)).ok
        return False

    async def greets(self) -> bool:
        """Whether a supervisor answers."""
        with suppress(SupervisorUnreachable):
            return bool(await self._ask_once(Hello()))
        return False

    async def _ask(self, order: Order) -> bytes:
        """Return the supervisor's answer, after a start if needed. Raises SupervisorUnreachable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        asked_for_one = False
        while True:
            try:
                return await self._ask_once(order)
            except SupervisorUnreachable:
                if loop.time() > deadline:
                    raise
            if not asked_for_one:
                asked_for_one = True
                await self.start()
            # A supervisor listens when ready, and no event tells the daemon.
            await asyncio.sleep(_RETRY_SECONDS)

    def memory_now(self, sandbox: str) -> int | None:
        """Return the bytes used now; None where the supervisor does not answer at once."""
        order = dialogue.ORDERS.encode(AskMemory(sandbox))
        with suppress(OSError, Malformed):
            packet = seqpacket.ask(
                self._path, order, timeout_seconds=_QUICK_SECONDS, max_bytes=_MAX_PACKET_BYTES
            )
            return dialogue.MEMORY_NOW.decode(packet).used_bytes
        return None

    async def usage(self, sandbox: str) -> LiveUsage | None:
        """Return the sandbox's usage, measured now; None where no supervisor answers."""
        with suppress(SupervisorUnreachable):
            return _read(dialogue.USAGE_NOW, await self._ask_once(AskUsage(sandbox))).usage
        return None

    async def execution_usages(self, sandbox: str) -> Mapping[str, LiveUsage]:
        """Return the usage of each running execution, by id; empty where no supervisor answers."""
        with suppress(SupervisorUnreachable):
            answer = await self._ask_once(AskExecutions(sandbox))
            return _read(dialogue.EXECUTIONS_NOW, answer).executions
        return {}

    async def _ask_once(self, order: Order) -> bytes:
        loop = asyncio.get_running_loop()
        async with self._lock:
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    if self._connection is None:
                        self._connection = seqpacket.connect(self._path)
                    connection = self._connection
                    await loop.sock_sendall(connection, dialogue.ORDERS.encode(order))
                    packet = await loop.sock_recv(connection, _MAX_PACKET_BYTES)
                    if packet:
                        return packet
                    raise ConnectionResetError("the supervisor went away")
            except (OSError, TimeoutError) as exc:
                # TimeoutError is an OSError; the kernel's has an errno.
                if isinstance(exc, TimeoutError) and exc.errno is None:
                    self._kill_silent()
                self.close()
                raise SupervisorUnreachable(f"cannot reach the supervisor: {exc}") from exc
            except BaseException:
                # A late answer must not be taken for the next one's.
                self.close()
                raise

    def _kill_silent(self) -> None:
        """Send SIGKILL to a hanging supervisor, which would hold no limit and block a successor."""
        if self._connection is None:
            return
        _log.error("The supervisor did not answer for %g seconds: ending it", _ANSWER_SECONDS)
        # The pid called listen(2) and the socket is still open: the pid is not reused.
        with suppress(ProcessLookupError):
            os.kill(credentials(self._connection).pid, signal.SIGKILL)


def _read(codec: Codec[_Answer], packet: bytes) -> _Answer:
    try:
        return codec.decode(packet)
    except Malformed as exc:
        raise SupervisorUnreachable(f"cannot use the supervisor: {exc}") from exc
