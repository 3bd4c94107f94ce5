# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of the spawner: asks for shims, finds the shims of an earlier daemon."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from sandboxd.errors import InternalError, OperationTimedOut, SandboxdError, host_lacks
from sandboxd.names import new_id
from sandboxd.outcome import Facts
from sandboxd.ports import LaunchRequest
from sandboxd.spawn import records, reports
from sandboxd.spawn.link import ShimLink
from sandboxd.spawn.packets import Packets
from sandboxd.spawn.supervised import socket_path

_ANSWER_SECONDS = 30.0
_START_SECONDS = 30.0
_END_SECONDS = 3.0
# sun_path of unix(7) less "/executions/<12>-<12>/control" and its NUL.
MAX_RUNTIME_PATH = 107 - 46


class SpawnerUnreachable(SandboxdError):
    """Raised when no spawner answers on the socket."""

    retryable = True


def spawner_argv(socket_path: str, *, idle_seconds: float | None) -> list[str]:
    """The command line that starts a spawner on `socket_path`."""
    script = str(Path(__file__).with_name("__main__.py"))
    argv = [sys.executable, "-I", "-S", script, socket_path]
    return argv if idle_seconds is None else [*argv, str(idle_seconds)]


async def start_spawner_process(socket_path: str) -> None:
    """Start one as a child, where no service manager does: the daemon's only fork.

    It outlives the daemon, and ends by itself once it has been idle and without one for a minute.
    """
    # It is our only child and nobody waits for it: the kernel shall reap it (signal(7)).
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Not posix_spawn: glibc's leaves its internal signals ignored, in every command after it too.
    process = subprocess.Popen(  # noqa: ASYNC220 - returns after the fork, at start-up
        spawner_argv(socket_path, idle_seconds=60.0),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        # The daemon's own is for the daemon: NOTIFY_SOCKET and the like are not the spawner's.
        env={"PATH": os.defpath},
        cwd="/",
    )
    process.returncode = 0


class SpawnerClient:
    """Talks to one spawner, starts it anew when it is gone; fits ports.Launcher.

    start: makes a spawner listen on the path it is given.
    """

    def __init__(self, runtime_directory: str, start: Callable[[str], Awaitable[None]]) -> None:
        self._runtime = runtime_directory
        self._start = start
        self._packets: Packets | None = None
        self._answer: asyncio.Future[tuple[dict[str, Any], list[int]]] | None = None
        self._lock = asyncio.Lock()
        self._ended = asyncio.Event()
        self._supervisor_argv: list[str] = []

    @property
    def socket_path(self) -> str:
        """Where the spawner listens."""
        return os.path.join(self._runtime, "spawner.sock")

    async def open(self) -> None:
        """Connect, after starting a spawner where none answers. Raises SpawnerUnreachable."""
        async with self._lock:
            await self._ensure_connected()

    async def stop_spawner(self) -> None:
        """Have the spawner end, and wait for that a little; its shims go on."""
        async with self._lock:
            if self._packets is not None:
                self._ended.clear()
                await self._exchange({"op": "stop"}, [])
                with suppress(TimeoutError):
                    async with asyncio.timeout(_END_SECONDS):
                        await self._ended.wait()
        self.close()

    async def supervise(self, argv: list[str]) -> None:
        """Have the spawner run this program, and run it again whenever it ends."""
        self._supervisor_argv = argv
        answer, _ = await self._ask({"op": "supervise", "argv": argv}, [])
        if not answer["ok"]:
            raise InternalError(f"cannot start the supervisor: {answer['text']}")

    def close(self) -> None:
        """Close the connection; the spawner goes on."""
        if self._packets is not None:
            self._packets.close()
            self._packets = None

    async def launch(self, request: LaunchRequest) -> ShimLink:
        """A held shim that reported "ready"; from then on its end cannot be lost to a full disk.

        Raises HostDiskFull, SpawnerUnreachable, OperationTimedOut.
        """
        try:
            records.reserve_record(request.record_directory)
        except OSError as exc:
            raise host_lacks("cannot prepare the execution", exc, request.record_directory) from exc
        spec = reports.specification(request)
        name = f"{request.sandbox.id}-{request.execution.id}"
        if not spec["cgroup"]:
            spec["supervisor"] = socket_path(self._runtime)
            spec["evidence_directory"] = self._control_directory(name)
        command = request.execution.command
        link = await self._launch(name, spec, command.stdin)
        link.subjects = {"exec": command.argv[0], "cwd": request.cwd}
        return link

    async def hold(self) -> ShimLink:
        """A shim without a command, to be aborted: for probes."""
        # A name of its own: one that was killed meanwhile has left its directory.
        name = f"probe-{new_id()}"
        directory = self._control_directory(name)
        return await self._launch(name, {"record_directory": directory}, None)

    async def attach(
        self, sandbox_id: str, execution_id: str, record_directory: str
    ) -> ShimLink | None:
        """The live shim of an execution of an earlier daemon; None when there is none."""
        start = records.read_json(record_directory, records.START_FILE)
        pidfd = reports.open_shim(start)
        directory = self._control_directory(f"{sandbox_id}-{execution_id}")
        if start is None or pidfd is None:
            shutil.rmtree(directory, ignore_errors=True)
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Refused: it lives, but is past its record. Its end is told by the pidfd.
        with suppress(FileNotFoundError, ConnectionRefusedError):
            connection.connect(os.path.join(directory, "control"))
        return ShimLink(
            connection, start["pid"], pidfd, record_directory, directory,
            pid_namespace=start["pid_namespace"],
        )  # fmt: skip

    def read_record(self, record_directory: str) -> Facts | None:
        """The record of an execution whose shim is gone; None when it left none."""
        return reports.read_facts(record_directory)

    # -- private

    def _control_directory(self, name: str) -> str:
        return os.path.join(self._runtime, "executions", name)

    async def _launch(self, name: str, spec: dict[str, Any], stdin: bytes | None) -> ShimLink:
        directory = self._control_directory(name)
        with ExitStack() as undo, ExitStack() as finally_close:
            try:
                os.makedirs(directory, mode=0o700)
                undo.callback(shutil.rmtree, directory, ignore_errors=True)
                listener, connection = _control_pair(os.path.join(directory, "control"))
                finally_close.callback(listener.close)
                undo.callback(connection.close)
                fds = [_memory_file("spec", json.dumps(spec).encode()), listener.fileno()]
                finally_close.callback(os.close, fds[0])
                if stdin is not None:
                    fds.append(_memory_file("stdin", stdin))
                    finally_close.callback(os.close, fds[2])
            except OSError as exc:
                raise host_lacks("cannot prepare the execution", exc, directory) from exc
            answer, received = await self._ask({"op": "spawn"}, fds)
            if not answer["ok"]:
                raise InternalError(f"cannot start a shim: {answer['text']}")
            link = ShimLink(
                connection, answer["pid"], received[0],
                str(spec["record_directory"]), directory,
                pid_namespace=answer["pid_namespace"],
            )  # fmt: skip
            undo.pop_all()
        try:
            await link.ready()
        except BaseException:
            await link.abort()
            raise
        return link

    async def _ask(
        self, request: dict[str, Any], fds: list[int]
    ) -> tuple[dict[str, Any], list[int]]:
        async with self._lock:
            await self._ensure_connected()
            return await self._exchange(request, fds)

    async def _ensure_connected(self) -> None:
        if self._packets is not None or await self._try_connect():
            return
        await self._start(self.socket_path)
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while not await self._try_connect():
            if asyncio.get_running_loop().time() > deadline:
                raise SpawnerUnreachable(
                    f"cannot reach the spawner on {self.socket_path}: it did not start"
                )
            await asyncio.sleep(0.01)
        if self._supervisor_argv:
            await self._exchange({"op": "supervise", "argv": self._supervisor_argv}, [])

    async def _try_connect(self) -> bool:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(self.socket_path)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return False
        self._packets = Packets(connection, self._on_answer, self._on_end)
        answer, _ = await self._exchange({"op": "hello"}, [])
        if answer.get("protocol") == records.PROTOCOL:
            return True
        # Another version's: let it end, its shims speak for themselves.
        await self._exchange({"op": "stop"}, [])
        self.close()
        return False

    async def _exchange(
        self, request: dict[str, Any], fds: list[int]
    ) -> tuple[dict[str, Any], list[int]]:
        packets = self._packets
        self._answer = asyncio.get_running_loop().create_future()
        try:
            if packets is None or not packets.send(request, fds):
                raise SpawnerUnreachable("cannot start a shim: the spawner went away")
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._answer
        except TimeoutError as exc:
            self.close()
            raise OperationTimedOut("cannot start a shim: the spawner does not answer") from exc
        finally:
            self._answer = None

    def _on_answer(self, answer: dict[str, Any], fds: list[int]) -> None:
        if self._answer is None or self._answer.done():
            for fd in fds:
                os.close(fd)
        else:
            self._answer.set_result((answer, fds))

    def _on_end(self) -> None:
        self._packets = None
        self._ended.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(
                SpawnerUnreachable("cannot start a shim: the spawner went away")
            )


def _control_pair(path: str) -> tuple[socket.socket, socket.socket]:
    """A listening control socket for the shim and a connection to it for us.

    Made before the shim exists, so that there is no moment at which it cannot be reached.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(4)
        connection.connect(path)
    except BaseException:
        listener.close()
        connection.close()
        raise
    return listener, connection


def _memory_file(name: str, data: bytes) -> int:
    """An fd with `data`: no size limit of a socket, no file that could be left."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    return fd
