# SPDX-License-Identifier: Apache-2.0
"""All processes of one execution: signalled, killed, stopped and reaped without ever forking.

Under a fork bomb a fork can wait for seconds inside the kernel, a signal cannot. In a pid namespace
kill(-1) by PID 1 reaches exactly the execution and is atomic against fork (kill(2)); without a pid
namespace the subreaper walks the descendants until none is left.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from contextlib import suppress
from functools import partial

from sandboxd.cgroup import job as job_cgroup
from sandboxd.osutil.processes import own_pid
from sandboxd.shim import standstill
from sandboxd.shim.patience import patiently

_PASS_SECONDS = 0.0005
_BLOCK_BYTES = 512
# Of a wait status (WCOREDUMP of wait(2)).
_CORE_DUMPED = 0x80
# The memory that an interpreter touches on the way to execve(2).
_EXEC_BYTES = 1 << 20


class Tree:
    """The execution's processes, from the shim's view."""

    def __init__(self, *, pid_namespace: bool, job: str | None) -> None:
        self._pid_namespace = pid_namespace
        self._job = job
        self.main_pid = 0
        self.main_status: int | None = None
        self.killed_count = 0
        self._killing = False

    def reap(self) -> bool:
        """Reap ended children; False when no child is left (ECHILD).

        The main process is seen to have ended, but stays a zombie until the rest is killed: a
        zombie counts against RLIMIT_NPROC, so that no process can be forked in its place.
        """
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if found is None:
                return True
            if found.si_pid == self.main_pid and not self._killing:
                self.main_status = _wait_status(found.si_code, found.si_status)
                return True
            pid, status = os.waitpid(found.si_pid, 0)
            if pid == self.main_pid:
                self.main_status = status
            elif self._killing and os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9:
                self.killed_count += 1

    @property
    def at_end(self) -> int | None:
        """The least number of processes at the kill; None before, or without a pid namespace."""
        return self.killed_count + 1 if self._pid_namespace else None

    def signal(self, number: int) -> None:
        """Send a signal to every process."""
        if self._pid_namespace:
            with suppress(ProcessLookupError):
                os.kill(-1, number)
            return
        for pid in standstill.descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def signal_main(self, number: int) -> None:
        """Send a signal to the main process, unless ended: the pid is free then."""
        if self.main_status is None:
            os.kill(self.main_pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to the main process's group, its own since the process leads a session."""
        if self.main_status is None:
            os.killpg(self.main_pid, number)

    def kill(self, *, timeout_seconds: float) -> bool:
        """Send SIGKILL to all and reap; return whether no process was left within the timeout."""
        self._killing = True
        deadline = time.monotonic() + timeout_seconds
        while True:
            self._kill_once()
            if not self.reap():
                return True
            if time.monotonic() > deadline:
                return False
            # Exiting processes need the processor that a busy loop would take.
            time.sleep(_PASS_SECONDS)

    def _kill_once(self) -> None:
        if self._job is not None:
            patiently(partial(job_cgroup.kill, self._job))
        patiently(partial(self.signal, signal.SIGKILL))

    def freeze(self, *, timeout_seconds: float) -> bool:
        """Stop every process, parents first; whether all are known to stand still."""
        if self._job is not None:
            freeze = partial(job_cgroup.freeze, self._job, timeout_seconds=timeout_seconds)
            return patiently(freeze)
        stop_all = partial(self.signal, signal.SIGSTOP)
        return standstill.stop(own_pid(), stop_all, timeout_seconds=timeout_seconds)

    def thaw(self) -> None:
        """Let every process go on, children first."""
        if self._job is not None:
            patiently(partial(job_cgroup.thaw, self._job))
        else:
            standstill.go_on(own_pid(), partial(self.signal, signal.SIGCONT))


def _wait_status(code: int, status: int) -> int:
    """Return the status as waitpid(2) has it, from code and status of waitid(2)."""
    if code == os.CLD_EXITED:
        return status << 8
    return status | (_CORE_DUMPED if code == os.CLD_DUMPED else 0)


def children_cpu_seconds() -> tuple[float, float]:
    """Return user and system time, in seconds, of all children reaped so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime, usage.ru_stime


def largest_child_bytes(setup_bytes: int) -> int | None:
    """Return the largest resident set in bytes of any reaped child; None where unknown.

    setup_bytes: the peak of the command's process before the exec. getrusage(2) counts that peak
    for the command as well: a value hardly above tells no more than the set-up.
    """
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return largest if largest > setup_bytes + _EXEC_BYTES else None


def has_ended(pid: int) -> bool:
    """Whether a child has ended, without reaping."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def children_io_bytes() -> tuple[int, int]:
    """Return the bytes that reaped children read from and wrote to disks (getrusage(2))."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_inblock * _BLOCK_BYTES, usage.ru_oublock * _BLOCK_BYTES
