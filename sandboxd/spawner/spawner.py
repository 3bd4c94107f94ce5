# SPDX-License-Identifier: Apache-2.0
"""The spawner: forks shims on request. `python3 -I -S`, one thread, frozen heap.

A service of its own on systemd hosts, else started once by the daemon. The spawner listens on a
SEQPACKET socket of root's (protocol/spawning.py), forks shims and builders (spawner/builder.py) and
reaps both; killing the spawner harms neither.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import assert_never

from sandboxd.osutil import linux, namespaces, seqpacket
from sandboxd.osutil.descriptors import close_all_but
from sandboxd.osutil.privileges import of_this_process
from sandboxd.osutil.processes import children
from sandboxd.osutil.readiness import notify_ready
from sandboxd.osutil.signals import wake_on_signals
from sandboxd.protocol import records, spawning
from sandboxd.protocol.codec import Malformed
from sandboxd.shim import shim
from sandboxd.spawner import builder
from sandboxd.spawner.helper import Helper

_MAX_CLIENTS = 8
_MAX_FDS = 3


class Spawner:
    """The fork server."""

    def __init__(self, path: str, *, idle_seconds: float | None) -> None:
        self._path = path
        self._idle_seconds = idle_seconds
        self._privileges = of_this_process()
        self._shims: set[int] = set()
        self._builders: set[int] = set()
        self._stopping = False
        self._supervisor = Helper()
        self._poll = select.poll()

    def serve(self) -> None:
        """Answer requests until told to stop, or idle for too long without a client."""
        os.chdir("/")
        self._server = seqpacket.Server(
            seqpacket.listen(self._path, backlog=16), self._poll,
            most=_MAX_CLIENTS, max_bytes=records.MAX_PACKET_BYTES, max_fds=_MAX_FDS,
        )  # fmt: skip
        wakeup = wake_on_signals(signal.SIGCHLD)
        self._poll.register(wakeup, select.POLLIN)
        linux.become_subreaper()
        self._pid_namespace_fd = namespaces.open_namespace("pid")
        notify_ready()
        # A collection in a shim would copy the pages shared with the spawner.
        gc.collect()
        gc.freeze()
        gc.disable()
        idle_since = time.monotonic()
        while not self._stopping:
            self._supervisor.keep_alive()
            for fd, _ in self._poll.poll(self._wait_milliseconds()):
                if fd == wakeup:
                    os.read(fd, 4096)
                    self._reap()
                elif fd == self._server.fileno():
                    self._server.accept()
                else:
                    self._answer(fd)
            if self._server.connections or self._shims:
                idle_since = time.monotonic()
            elif self._idle_seconds and time.monotonic() - idle_since > self._idle_seconds:
                break
        self._supervisor.stop()

    def _wait_milliseconds(self) -> int | None:
        if self._supervisor.is_due:
            return Helper.RETRY_MILLISECONDS
        if self._idle_seconds is None or self._server.connections or self._shims:
            return None
        return int(self._idle_seconds * 1000)

    def _answer(self, fd: int) -> None:
        received = self._server.receive(fd)
        if received is None:
            return
        try:
            answer, pidfd = self._obey(received.packet, received.fds)
            # A client that has gone finds the shim by the record.
            self._server.send(received.connection, spawning.ANSWERS.encode(answer), pidfd)
            for fd in pidfd:
                os.close(fd)
        finally:
            for given in received.fds:
                with suppress(OSError):
                    os.close(given)

    def _obey(self, packet: bytes, fds: list[int]) -> tuple[spawning.Answer, list[int]]:
        """Return the answer, with a pidfd of what was forked; the caller closes the pidfd."""
        try:
            request = spawning.REQUESTS.decode(packet)
            match request:
                case spawning.Hello():
                    return spawning.Greeting(records.PROTOCOL, os.getpid(), len(self._shims)), []
                case spawning.Supervise(argv):
                    self._supervisor.run(list(argv))
                case spawning.Stop():
                    self._stopping = True
                case spawning.Spawn():
                    _check_count(fds, 2, 3)
                    pid, pid_namespace = self._spawn(fds)
                    return spawning.Spawned(pid, pid_namespace), [os.pidfd_open(pid)]
                case spawning.ForkBuilder():
                    _check_count(fds, 2)
                    return spawning.Done(), [os.pidfd_open(self._fork_builder(fds))]
                case _:
                    assert_never(request)
        except Malformed as exc:
            return spawning.Refused(0, str(exc)), []
        except OSError as exc:
            return spawning.Refused(exc.errno or 0, str(exc)), []
        return spawning.Done(), []

    def _spawn(self, fds: list[int]) -> tuple[int, bool]:
        pid_namespace = False
        # Without CAP_SYS_ADMIN there is none: the shim is a subreaper then, and says so.
        with suppress(PermissionError):
            linux.unshare(linux.CLONE_NEWPID)
            pid_namespace = True
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid_namespace and pid != 0:
                namespaces.enter(self._pid_namespace_fd, "pid")
        if pid == 0:
            self._become_shim(fds, pid_namespace=pid_namespace)
        self._shims.add(pid)
        return pid, pid_namespace

    def _fork_builder(self, fds: list[int]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                _become_child(fds)
                builder.run(fds[0], fds[1], self._privileges)
            finally:
                os._exit(1)
        self._builders.add(pid)
        return pid

    def _become_shim(self, fds: list[int], *, pid_namespace: bool) -> None:
        try:
            _become_child(fds)
            specification = os.pread(fds[0], records.MAX_SPEC_BYTES, 0)
            os.close(fds[0])
            listener = socket.socket(fileno=fds[1])
            stdin_fd = fds[2] if len(fds) > 2 else None
            shim.run(
                specification, listener, stdin_fd, self._privileges, pid_namespace=pid_namespace
            )
        finally:
            os._exit(1)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            self._shims.discard(pid)
            self._builders.discard(pid)
            self._supervisor.ended(pid)
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill the orphans of dead shims: children neither shim, builder nor supervisor."""
        known = {*self._shims, *self._builders, self._supervisor.pid}
        for pid in {*children(os.getpid())} - known:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _check_count(fds: list[int], *allowed: int) -> None:
    if len(fds) not in allowed:
        raise Malformed(f"{len(fds)} descriptors came with the request")


def _become_child(fds: list[int]) -> None:
    """Let go of all that is the spawner's, but `fds`."""
    close_all_but(fds)
    signal.set_wakeup_fd(-1)


def main(arguments: list[str]) -> None:
    """Run the spawner. arguments: the socket's path, optionally the idle seconds until the end."""
    idle = float(arguments[1]) if len(arguments) > 1 else None
    Spawner(arguments[0], idle_seconds=idle).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
