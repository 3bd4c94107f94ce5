# SPDX-License-Identifier: Apache-2.0
"""The shim: trusted parent of one execution. Forked from the spawner, with the daemon's uid.

Theory of operation. The shim is PID 1 of the execution's pid namespace (else a subreaper). The shim
reports "ready" on the control socket and waits: the daemon now puts the shim into the execution's
scope, then says "go"; the end of that connection before "go" means abort. The shim forks the child,
which gives up all privileges (isolation/enter.py) and becomes the command; the shim checks the
child from outside and reports "started". Then the shim copies output to the spools, feeds input,
keeps time and waits for the first event that ends the execution: the main process's end, a limit or
an order to kill. That sets the reason once. The shim kills what is left, drains the pipes for a
bounded time, reads the counters while the scope still exists, writes the record, rings the doorbell
and exits. Connections may come and go: a new daemon connects to the same socket. Input from inside
is never trusted: pipes are read as bytes, all further facts come from the kernel.

The shim imports little, since every execution pays for imports, and never forks once the command
runs.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from functools import partial
from typing import NoReturn, assert_never

from sandboxd.cgroup import counters
from sandboxd.cgroup import job as job_cgroup
from sandboxd.isolation import verify
from sandboxd.osutil import linux
from sandboxd.osutil.privileges import Privileges
from sandboxd.osutil.processes import boot_id, own_pid, process_start_time, set_oom_score_adj
from sandboxd.osutil.signals import wake_on_signals
from sandboxd.protocol import link, records
from sandboxd.protocol.specification import SPECIFICATION, ExecutionSpec, ShimSpec
from sandboxd.shim.child import ChildFailed, SetupUse, start_child
from sandboxd.shim.control import Control
from sandboxd.shim.ending import Ending
from sandboxd.shim.patience import patiently
from sandboxd.shim.sampling import PeakSampler
from sandboxd.shim.stdio import Stdio
from sandboxd.shim.supervisor_evidence import evidence_of
from sandboxd.shim.tree import (
    Tree,
    children_cpu_seconds,
    children_io_bytes,
    has_ended,
    largest_child_bytes,
)

_GO_SECONDS = 120.0
_KILL_SECONDS = 5.0
_DRAIN_SECONDS = 0.5
_CPU_CHECK_SECONDS = 0.1


def run(
    specification: bytes,
    listener: socket.socket,
    stdin_fd: int | None,
    privileges: Privileges,
    *,
    pid_namespace: bool,
) -> NoReturn:
    """Live as the shim of one execution; never returns. The caller has closed all further fds."""
    status = 1
    try:
        spec = SPECIFICATION.decode(specification)
        Shim(spec, listener, stdin_fd, privileges, pid_namespace=pid_namespace).live()
        status = 0
    except Exception as exc:
        # The daemon will only find the execution LOST; this trace goes to the spawner's log.
        sys.excepthook(type(exc), exc, exc.__traceback__)
    finally:
        os._exit(status)


class Shim:
    """The shim of one execution."""

    def __init__(
        self,
        spec: ShimSpec,
        listener: socket.socket,
        stdin_fd: int | None,
        privileges: Privileges,
        *,
        pid_namespace: bool,
    ) -> None:
        self._spec = spec
        self._directory = spec.record_directory
        self._stdin_fd = stdin_fd
        self._privileges = privileges
        self._pid_namespace = pid_namespace
        self._poll = select.poll()
        self._control = Control(listener, self._poll)
        self._scope: str | None = None
        self._job: str | None = None
        self._baseline = records.Baseline()
        self._memory_events_fd = -1
        self._sampler: PeakSampler | None = None
        self._setup = SetupUse()

    def live(self) -> None:
        """Live from "ready" to the record."""
        if not self._is_wanted():
            return
        self._prepare()
        if not self._wait_for_go() or self._spec.execution is None:
            return
        try:
            self._begin(self._spec.execution)
        except ChildFailed as exc:
            failed = link.Failed(exc.step, exc.errno, exc.text, exc.interpreter)
            self._control.send(failed)
            return
        self._control.greeting = link.Started(self._started_at)
        self._control.send(self._control.greeting)
        self._run_until_reason()
        self._end()

    # -- before the command

    def _is_wanted(self) -> bool:
        """Whether the daemon still waits for this shim.

        A daemon that gave the shim up may have asked for a new shim, which owns the records.
        """
        # The first poll accepts the connection, the second sees the end.
        for _ in range(2):
            for fd, events in self._poll.poll(0):
                self._control.handle(fd, events)
        return not self._control.was_left

    def _prepare(self) -> None:
        os.setsid()
        os.chdir("/")
        os.umask(0o077)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self._wakeup_fd = wake_on_signals(signal.SIGCHLD)
        if not self._pid_namespace:
            linux.become_subreaper()
        self._missing = _be_spared()
        pid = own_pid()
        start = records.StartRecord(
            protocol=records.PROTOCOL,
            pid=pid,
            start_time=process_start_time(pid),
            boot_id=boot_id(),
            pid_namespace=self._pid_namespace,
            missing=tuple(self._missing),
        )
        records.START.write(self._directory, records.START_FILE, start)
        self._poll.register(self._wakeup_fd, select.POLLIN)

    def _wait_for_go(self) -> bool:
        """Whether to go on; False = the daemon went away or said otherwise."""
        self._control.greeting = link.Ready(self._pid_namespace, tuple(self._missing))
        self._control.send(self._control.greeting)
        deadline = time.monotonic() + _GO_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            for fd, events in self._poll.poll(int(left * 1000) + 1):
                for order in self._control.handle(fd, events):
                    if isinstance(order, link.Go):
                        self._control.greeting = None
                        return True
            if self._control.was_left:
                return False
        return False

    def _begin(self, execution: ExecutionSpec) -> None:
        self._execution = execution
        self._tree = Tree(pid_namespace=self._pid_namespace, job=None)
        path = execution.cgroup
        if path is not None:
            own = counters.own_cgroup()
            if own is None or not own.endswith(f"/{path}"):
                raise ChildFailed("scope", 0, f"the shim is in {own}, not in its scope")
            self._scope = counters.ROOT + own
            self._baseline = records.Baseline(**counters.baseline(self._scope, path))
            try:
                self._job = job_cgroup.make_beside(self._scope)
            except OSError as exc:
                raise ChildFailed("scope", exc.errno or 0, f"cannot divide it: {exc}") from exc
            self._tree = Tree(pid_namespace=self._pid_namespace, job=self._job)
        child = start_child(
            execution, self._stdin_fd, pid_namespace=self._pid_namespace, job=self._job
        )
        self._started, self._started_at = child.started, child.started_at
        self._setup = child.setup
        self._ending = Ending(
            timeout_seconds=execution.timeout_seconds,
            grace_seconds=execution.kill_grace_seconds,
            now=self._started,
        )
        self._tree.main_pid = child.pid
        self._check_privileges(child.pid)
        self._stdio = Stdio(self._directory, execution, child, self._stdin_fd, self._poll)
        if self._scope is not None:
            path = os.path.join(self._scope, "memory.events")
            self._memory_events_fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._poll.register(self._memory_events_fd, select.POLLPRI)

    def _check_privileges(self, pid: int) -> None:
        """Check that the command gave up all privileges. Raises ChildFailed.

        An ended command passes. A command killed before the exec also closes the error pipe: that
        is the execution's end, not a failure to start.
        """
        pidfd = os.pidfd_open(pid)
        try:
            host_pid = verify.host_pid(pidfd)
            command = self._execution.command
            left = verify.privileges_left(
                host_pid, command.uid, self._privileges, is_filtered=command.filter is not None
            )
            if self._scope is None:
                self._sampler = PeakSampler(host_pid, time.monotonic())
        finally:
            os.close(pidfd)
        if left is not None and not has_ended(pid):
            self._tree.kill(timeout_seconds=_KILL_SECONDS)
            raise ChildFailed("verify", 0, left)

    # -- while the command runs

    def _run_until_reason(self) -> None:
        while self._ending.reason is None:
            for fd, events in self._poll.poll(self._poll_milliseconds()):
                self._handle(fd, events)
            if self._sampler is not None and self._tree.main_status is None:
                self._sampler.look(time.monotonic())
            if self._ending.check(time.monotonic()):
                self._tree.signal(signal.SIGTERM)
            if self._ending.reason is None and not self._ending.is_frozen:
                self._check_cpu_time()

    def _handle(self, fd: int, events: int) -> None:
        if self._stdio.handle(fd):
            if self._stdio.has_exceeded:
                self._ending.conclude(self._stdio.excess)
        elif fd == self._wakeup_fd:
            os.read(fd, 4096)
            self._tree.reap()
            if self._tree.main_status is not None:
                self._ending.conclude("exited")
        elif fd == self._memory_events_fd:
            # The read arms the next notification (kernfs) and must precede the evaluation.
            text = patiently(lambda: os.pread(fd, 4096, 0)).decode()
            if counters.parse_keys(text)["oom_kill"] > 0:
                self._ending.conclude("oom")
        else:
            for order in self._control.handle(fd, events):
                self._obey(order)

    def _obey(self, order: link.Order) -> None:
        match order:
            case link.Go():
                # The command runs already.
                return
            case link.Kill(code, grace):
                if self._ending.kill(code, grace_seconds=grace, now=time.monotonic()):
                    self._tree.signal(signal.SIGTERM)
            case link.SendSignal(number, group):
                send = self._tree.signal_group if group else self._tree.signal_main
                send(number)
            case link.Freeze():
                self._ending.freeze(time.monotonic())
                done = self._tree.freeze(timeout_seconds=1.0)
                self._control.send(link.Frozen(done))
            case link.Thaw():
                self._tree.thaw()
                self._ending.thaw(time.monotonic())
                self._control.send(link.Thawed())
            case link.ShareInput(number):
                fd = self._stdio.held_fd
                answer = link.Answered(number, fd is not None, self._stdio.is_terminal)
                self._control.answer(answer, [] if fd is None else [fd])
            case link.CloseInput(number):
                self._stdio.close_input()
                self._control.answer(link.Answered(number), [])
            case link.Resize(number, rows, cols):
                self._stdio.resize(rows, cols)
                self._control.answer(link.Answered(number), [])
            case _:
                assert_never(order)

    def _largest_process_bytes(self) -> int | None:
        """Return the largest resident set in bytes: by getrusage(2), else the sampled minimum."""
        seen = None if self._sampler is None else self._sampler.peak_bytes
        return largest_child_bytes(self._setup.peak_bytes) or seen

    def _poll_milliseconds(self) -> int | None:
        wait = self._ending.wait_seconds(time.monotonic())
        look = None if self._sampler is None else self._sampler.wait_seconds()
        if look is not None:
            wait = look if wait is None else min(wait, look)
        if wait is None:
            return None
        if self._execution.cpu_seconds is not None and self._scope is not None:
            wait = min(wait, _CPU_CHECK_SECONDS)
        return int(wait * 1000) + 1

    def _check_cpu_time(self) -> None:
        most, scope = self._execution.cpu_seconds, self._scope
        if most is not None and scope is not None:
            used = patiently(lambda: counters.key(scope, "cpu.stat", "usage_usec")) or 0
            if used / 1e6 >= most:
                self._ending.conclude("cpu_time")

    # -- the end

    def _end(self) -> None:
        wall = time.monotonic() - self._started
        kill_complete = self._tree.kill(timeout_seconds=_KILL_SECONDS)
        self._stdio.drain(timeout_seconds=_DRAIN_SECONDS)
        if self._stdio.has_exceeded:
            # The last output exceeded the cap, read after the exit was seen.
            self._ending.exceeded_output(self._stdio.excess)
        user, system = children_cpu_seconds()
        user = max(0.0, user - self._setup.user_seconds)
        system = max(0.0, system - self._setup.system_seconds)
        read, written = children_io_bytes()
        final = None
        if self._scope is not None:
            path = str(self._execution.cgroup)
            final = records.Counters(**patiently(partial(counters.final, self._scope, path)))
        verdict, supervised = evidence_of(self._execution.supervision)
        record = records.EndRecord(
            protocol=records.PROTOCOL,
            reason=str(self._ending.reason),
            kill_code=self._ending.kill_code,
            wait_status=self._tree.main_status,
            started_at=self._started_at,
            wall_seconds=wall,
            finished_at=self._started_at + wall,
            kill_complete=kill_complete,
            leftovers_killed=self._tree.killed_count,
            cpu_user_seconds=user,
            cpu_system_seconds=system,
            streams=self._stdio.facts(),
            baseline=self._baseline,
            counters=final,
            pids_at_end=self._tree.at_end,
            io_read_bytes=read,
            io_written_bytes=written,
            largest_process_bytes=self._largest_process_bytes(),
            verdict=verdict,
            supervised=supervised,
        )
        patiently(lambda: records.write_end(self._directory, record))
        self._control.send(link.Ended())


def _be_spared() -> list[str]:
    """Protect the shim from memory and CPU pressure; return what this host does not allow."""
    missing = []
    try:
        set_oom_score_adj(-1000)
    except PermissionError:
        missing.append("oom_score_adj: the host's OOM killer may take a shim and end its execution")
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    except PermissionError:
        missing.append("priority: on a busy host a shim may be late to act")
    return missing
