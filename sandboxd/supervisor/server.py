# SPDX-License-Identifier: Apache-2.0
"""The supervisor: `python3 -I -S`, one thread, scheduled ahead of the supervised processes.

Theory of operation. The wanted state is on disk, a file for each sandbox (protocol/supervision.py),
so that the supervisor may be killed and replaced at any moment. A packet on the socket is a
doorbell: "read this sandbox's file now", answered once the file is in force. Each sandbox has a
time at which the next look is due. At a look the sandbox's processes are counted, memory is judged
and, where too much was used, the processes are stopped until the debt is paid (sandbox.py). An
execution or sandbox over a memory limit is killed after the reason was written for the shim
(protocol/evidence.py). The supervisor never forks.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from typing import assert_never

from sandboxd.osutil.privileges import of_this_process
from sandboxd.osutil.readiness import notify_ready
from sandboxd.protocol import dialogue
from sandboxd.protocol.evidence import socket_path
from sandboxd.protocol.supervision import PROTOCOL, StateDirectory
from sandboxd.supervisor.doorbell import Doorbell
from sandboxd.supervisor.files import memfd_device
from sandboxd.supervisor.host import Abilities, prepare
from sandboxd.supervisor.process_table import ProcessTable
from sandboxd.supervisor.sandbox import Sandbox
from sandboxd.supervisor.scan import Scanner
from sandboxd.supervisor.singleton import become_the_one
from sandboxd.supervisor.uid_signaller import UidSignaller

_UPKEEP_SECONDS = 1.0
_ORPHAN_SECONDS = 30.0
# For all exact sums together in one round of looks.
_MEASURE_SECONDS = 0.02
# An answer is one packet: so many executions of a sandbox fit.
_MOST_TOLD = 128


class Server:
    """The supervisor of all sandboxes of one runtime directory."""

    def __init__(self, runtime_directory: str) -> None:
        self._runtime = runtime_directory
        self._directory = StateDirectory(runtime_directory)
        self._stopping = False
        self._privileges = of_this_process()
        self._processes = ProcessTable(self._privileges)
        self._signaller = UidSignaller(self._privileges)
        self._times: dict[str, int] = {}
        self._not_followed: dict[str, str] = {}
        self._upkeep_at = 0.0
        self._slice_seconds = _MEASURE_SECONDS
        self._needed_at = time.monotonic()

    def stop(self) -> None:
        """End after this look."""
        self._stopping = True

    def serve(self) -> None:
        """Serve until told to stop, or until idle without a parent for 30 seconds."""
        self._directory.make()
        lock = become_the_one(
            os.path.join(self._directory.path, "lock"),
            socket_path(self._runtime),
        )
        self._parent = os.getppid()
        self._abilities: Abilities = prepare(self._privileges)
        self._scanner = Scanner(memfd_device())
        self._is_new = True
        self._upkeep(time.monotonic())
        self._is_new = False
        doorbell = Doorbell(socket_path(self._runtime), self._obey)
        gc.collect()
        gc.freeze()
        while not self._stopping:
            doorbell.wait(self._milliseconds())
            self._look()
        for sandbox in self._processes.sandboxes.values():
            sandbox.leave()
        os.close(lock)

    # -- looks

    def _watched(self) -> list[Sandbox]:
        return [s for s in self._processes.sandboxes.values() if s.is_watched]

    def _scanned(self) -> list[Sandbox]:
        return self._watched() if self._abilities.sees_shared else []

    def _milliseconds(self) -> int:
        due = min((min(s.due, s.due_if_grown) for s in self._watched()), default=self._upkeep_at)
        scan = self._scanner.due(self._scanned())
        first = min(due, self._upkeep_at, self._upkeep_at if scan is None else scan)
        return max(0, int((first - time.monotonic()) * 1000) + 1)

    def _look(self) -> None:
        now = time.monotonic()
        if now >= self._upkeep_at:
            self._upkeep(now)
        self._scanner.look()
        for sandbox in self._watched():
            if sandbox.due_if_grown <= now < sandbox.due:
                sandbox.hurry(now, self._scanner.free_bytes)
        scan = self._scanner.due(self._scanned())
        if any(s.due <= now for s in self._watched()) or (scan is not None and scan <= now):
            self._processes.take_in(now)
            self._scanner.take_turn(now, self._scanned())
        now = time.monotonic()
        due = sorted((s for s in self._watched() if s.due <= now), key=lambda one: one.due)
        measuring = sum(one.is_measuring for one in due)
        self._slice_seconds = _MEASURE_SECONDS / max(1, measuring)
        for sandbox in due:
            self._look_at(sandbox)

    def _look_at(self, sandbox: Sandbox) -> None:
        now = time.monotonic()
        gone = sandbox.look(
            now,
            shared_bytes=self._scanner.shared_bytes,
            free_bytes=self._scanner.free_bytes,
            slice_seconds=self._slice_seconds,
        )
        for pid in gone:
            self._processes.forget(pid, now)
        for execution in [e for e in sandbox.executions.values() if e.is_over]:
            del sandbox.executions[execution.entry.id]
            self._processes.drop(execution, now)

    def _look_now(self, sandbox: Sandbox) -> None:
        """Look at a sandbox for a client."""
        if sandbox.is_fresh:
            return
        now = time.monotonic()
        self._processes.take_in(now)
        if self._abilities.sees_shared:
            self._scanner.scan_now(now, sandbox)
        self._look_at(sandbox)

    # -- what is wanted

    def _upkeep(self, now: float) -> None:
        """Once a second, read files whose doorbell was not rung, and check whether to end."""
        self._upkeep_at = now + _UPKEEP_SECONDS
        times = self._directory.times()
        changed = {name for name, at in times.items() if self._times.get(name) != at}
        gone = self._times.keys() - times.keys()
        for name in sorted(changed | gone | self._not_followed.keys()):
            self._load(name)
        self._times = times
        if any(sandbox.is_watched for sandbox in self._processes.sandboxes.values()):
            self._needed_at = now
        is_orphan = os.getppid() != self._parent
        if is_orphan and now - self._needed_at > _ORPHAN_SECONDS:
            self._stopping = True

    def _load(self, name: str) -> str | None:
        """Follow a sandbox's file; return an error as text, which the upkeep retries, or None."""
        try:
            is_there = self._follow(name)
        except (OSError, ValueError) as exc:
            why = f"cannot supervise sandbox {name}: {exc}"
            if self._not_followed.get(name) != why:
                sys.stderr.write(f"{why}\n")
            self._not_followed[name] = why
            return why
        self._not_followed.pop(name, None)
        return None if is_there else f"cannot supervise sandbox {name}: it has no file"

    def _follow(self, name: str) -> bool:
        """Whether there is a file. Raises OSError and ValueError."""
        now = time.monotonic()
        state = self._directory.read(name)
        sandbox = self._processes.sandboxes.get(name)
        if state is None:
            if sandbox is not None:
                self._processes.remove(sandbox, now)
        elif sandbox is None:
            made = Sandbox(
                state,
                self._directory,
                self._abilities,
                self._signaller,
                shared_bytes=self._scanner.look(),
            )
            made.is_whole = not state.executions and not self._is_new
            self._processes.add(made)
        else:
            for execution in sandbox.follow(state):
                self._processes.drop(execution, now)
            self._processes.index(sandbox)
        return state is not None

    # -- orders

    def _obey(self, order: dialogue.Order) -> dialogue.Answer:
        match order:
            case dialogue.Hello():
                return self._greeting()
            case dialogue.Load(name):
                why = self._load(name)
                return dialogue.Loaded(why is None, why)
            case dialogue.Stop():
                self._stopping = True
                return dialogue.Obeyed()
        sandbox = self._processes.sandboxes.get(order.sandbox)
        return dialogue.Refused() if sandbox is None else self._obey_on(sandbox, order)

    def _obey_on(self, sandbox: Sandbox, order: dialogue.OrderOnSandbox) -> dialogue.Answer:
        match order:
            case dialogue.AskMemory():
                self._look_now(sandbox)
                return dialogue.MemoryNow(True, sandbox.used_bytes)
            case dialogue.AskUsage():
                self._look_now(sandbox)
                return dialogue.UsageNow(True, sandbox.usage())
            case dialogue.AskExecutions():
                self._look_now(sandbox)
                told = list(sandbox.executions.items())[:_MOST_TOLD]
                return dialogue.ExecutionsNow(True, {name: one.usage() for name, one in told})
            case dialogue.Kill():
                sandbox.kill()
            case dialogue.Sweep():
                if sandbox.executions:
                    return dialogue.Refused()
                sandbox.kill()
            case dialogue.Conclude():
                execution = sandbox.executions.get(order.execution)
                if execution is None:
                    return dialogue.Refused()
                execution.write_report(time.monotonic(), at_once=True)
                return dialogue.Concluded(True, execution.verdict)
            case _:
                assert_never(order)
        return dialogue.Obeyed()

    def _greeting(self) -> dialogue.Greeting:
        abilities = self._abilities
        return dialogue.Greeting(
            ok=True,
            protocol=PROTOCOL,
            pid=os.getpid(),
            scheduling=abilities.scheduling,
            reads_io=abilities.reads_io,
            sees_shared=abilities.sees_shared,
            measures_exactly=abilities.measures_exactly,
            changes_rlimits=abilities.changes_rlimits,
            missing=tuple(abilities.missing),
            sees_mapped=abilities.sees_mapped,
        )


def main(runtime_directory: str) -> None:
    """Live as the supervisor of one runtime directory."""
    os.chdir("/")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    server = Server(runtime_directory)
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    notify_ready()
    server.serve()
