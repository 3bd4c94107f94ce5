# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of the spawner: asks for shims, finds the shims of an earlier daemon."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from sandboxd.core.names import new_id
from sandboxd.core.outcome import Facts
from sandboxd.engine.ports.launch import LaunchRequest
from sandboxd.errors import InternalError, host_lacks
from sandboxd.launch import reports
from sandboxd.launch.connection import SpawnerConnection, SpawnerUnreachable
from sandboxd.launch.link import ShimLink
from sandboxd.osutil import seqpacket
from sandboxd.osutil.descriptors import memory_file
from sandboxd.osutil.privileges import Privileges
from sandboxd.protocol import records
from sandboxd.protocol.spawning import Refused, Request, Spawn, Spawned
from sandboxd.protocol.specification import SPECIFICATION, ShimSpec

_ATTEMPTS = 3
_Wanted = TypeVar("_Wanted")
# sun_path of unix(7) less "/executions/<12>-<12>/control" and a NUL.
MAX_RUNTIME_PATH = 107 - 46


def spawner_argv(socket_path: str, *, idle_seconds: float | None) -> list[str]:
    """Return the command line that starts a spawner on `socket_path`."""
    script = str(Path(__file__).parents[1] / "spawner/__main__.py")
    argv = [sys.executable, "-I", "-S", script, socket_path]
    return argv if idle_seconds is None else [*argv, str(idle_seconds)]


async def start_spawner_process(socket_path: str) -> None:
    """Start a spawner as a child, where no service manager does: the daemon's only fork.

    The spawner outlives the daemon, and ends after a minute without shims and daemon.
    """
    # The spawner is the only child and is never waited for: the kernel shall reap it (signal(7)).
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Not posix_spawn: glibc's leaves its internal signals ignored, in every later command too.
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
    """A client that asks a spawner for shims; fits ports.launch.Launcher.

    start: makes a spawner listen on the given path.
    """

    def __init__(
        self,
        runtime_directory: str,
        privileges: Privileges,
        start: Callable[[str], Awaitable[None]],
    ) -> None:
        self._runtime = runtime_directory
        self._privileges = privileges
        self._spawner = SpawnerConnection(os.path.join(runtime_directory, "spawner.sock"), start)

    @property
    def runtime_directory(self) -> str:
        """The directory below which the spawner makes files."""
        return self._runtime

    async def ask(
        self, request: Request, fds: list[int], wanted: type[_Wanted]
    ) -> tuple[_Wanted | Refused, list[int]]:
        """Return the answer; the caller owns the descriptors. Raises SpawnerUnreachable."""
        return await self._spawner.ask(request, fds, wanted)

    async def open(self) -> None:
        """Connect, after starting a spawner where none answers. Raises SpawnerUnreachable."""
        await self._spawner.open()

    async def upkeep(self) -> None:
        """Check that the spawner answers, ahead of need. Raises SpawnerUnreachable."""
        await self._spawner.check()

    async def supervise(self, argv: list[str]) -> None:
        """Have the spawner run this program, and run the program again whenever it ends."""
        await self._spawner.supervise(argv)

    async def stop_spawner(self) -> None:
        """Have the spawner end, and wait for the end for up to three seconds; the shims go on."""
        await self._spawner.stop()

    async def stop_started(self) -> None:
        """Have the spawner end if this object started it."""
        if self._spawner.has_started:
            await self._spawner.stop()

    def close(self) -> None:
        """Close the connection; the spawner goes on."""
        self._spawner.close()

    async def launch(self, request: LaunchRequest) -> ShimLink:
        """Return a held shim that reported "ready", with disk space reserved for the record.

        Raises HostDiskFull, HostStorageFailed, SpawnerUnreachable, OperationTimedOut.
        """
        try:
            records.reserve_record(request.record_directory)
        except OSError as exc:
            raise host_lacks("cannot prepare the execution", exc, request.record_directory) from exc
        name = f"{request.sandbox.id}-{request.execution.id}"
        execution = reports.specification(
            request, self._runtime, self._control_directory(name), self._privileges
        )
        command = request.execution.command
        link = await self._launch(
            name, ShimSpec(request.record_directory, execution), command.stdin
        )
        link.subjects = {"exec": command.argv[0], "cwd": request.cwd}
        return link

    async def hold(self) -> ShimLink:
        """Return a shim without a command, to be aborted: for probes."""
        # A fresh name: a probe that was killed has left a directory.
        name = f"probe-{new_id()}"
        directory = self._control_directory(name)
        return await self._launch(name, ShimSpec(directory, None), None)

    async def attach(
        self, sandbox_id: str, execution_id: str, record_directory: str
    ) -> ShimLink | None:
        start = reports.read_start(record_directory)
        pidfd = reports.open_shim(start)
        directory = self._control_directory(f"{sandbox_id}-{execution_id}")
        if start is None or pidfd is None:
            shutil.rmtree(directory, ignore_errors=True)
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The queue of a hanging shim may be full of earlier daemons' connections.
        connection.setblocking(False)
        # Refused: the shim lives, but has written the record. The pidfd tells the end.
        with suppress(FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            connection.connect(os.path.join(directory, "control"))
        return ShimLink(
            connection, start.pid, pidfd, record_directory, directory,
            pid_namespace=start.pid_namespace,
        )  # fmt: skip

    def read_record(self, record_directory: str) -> Facts | None:
        return reports.read_facts(record_directory)

    # -- private

    def _control_directory(self, name: str) -> str:
        return os.path.join(self._runtime, "executions", name)

    async def _launch(self, name: str, spec: ShimSpec, stdin: bytes | None) -> ShimLink:
        for _ in range(_ATTEMPTS - 1):
            # A shim of a spawner that went away finds no connection, and ends.
            with suppress(SpawnerUnreachable):
                return await self._launch_once(name, spec, stdin)
        return await self._launch_once(name, spec, stdin)

    async def _launch_once(self, name: str, spec: ShimSpec, stdin: bytes | None) -> ShimLink:
        directory = self._control_directory(name)
        with ExitStack() as undo, ExitStack() as finally_close:
            try:
                os.makedirs(directory, mode=0o700)
                undo.callback(shutil.rmtree, directory, ignore_errors=True)
                listener, connection = _control_pair(os.path.join(directory, "control"))
                finally_close.callback(listener.close)
                undo.callback(connection.close)
                fds = [memory_file("spec", SPECIFICATION.encode(spec)), listener.fileno()]
                finally_close.callback(os.close, fds[0])
                if stdin is not None:
                    fds.append(memory_file("stdin", stdin))
                    finally_close.callback(os.close, fds[2])
            except OSError as exc:
                raise host_lacks("cannot prepare the execution", exc, directory) from exc
            answer, received = await self._spawner.ask(Spawn(), fds, Spawned)
            if isinstance(answer, Refused):
                raise InternalError(f"cannot start a shim: {answer.text}")
            if not received:
                # The kernel drops what we have no descriptors for (unix(7), MSG_CTRUNC).
                raise host_lacks("cannot start a shim", OSError(errno.EMFILE, ""))
            link = ShimLink(
                connection, answer.pid, received[0],
                spec.record_directory, directory,
                pid_namespace=answer.pid_namespace,
            )  # fmt: skip
            undo.pop_all()
        try:
            await link.ready()
        except BaseException:
            await link.abort()
            raise
        return link


def _control_pair(path: str) -> tuple[socket.socket, socket.socket]:
    """Return a listening control socket for the shim and a connection to that socket.

    Made before the shim exists, so that the shim is reachable from the first moment.
    """
    listener = seqpacket.listen(path, backlog=4)
    try:
        return listener, seqpacket.connect(path)
    except BaseException:
        listener.close()
        raise
