# SPDX-License-Identifier: Apache-2.0
"""Forks the command's process: pipes before the fork, a close-on-exec pipe tells of the exec."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from sandboxd.cgroup import job as job_cgroup
from sandboxd.isolation import enter
from sandboxd.protocol.link import FAILURE, Failed
from sandboxd.protocol.specification import CommandSpec, ExecutionSpec

_EXEC_SECONDS = 60.0
_MAX_TEXT = 1000


class ChildFailed(enter.EnterFailed):
    """Raised when the command could not be started; the child is gone."""


@dataclass(frozen=True, slots=True)
class SetupUse:
    """What the child used before the exec: seconds of CPU, and peak memory in bytes."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Child:
    """A running command.

    outputs, input_fd: the shim's ends of the pipes, or the terminal's master, whose slave is
    `terminal_fd`. started, started_at: the time of the fork on the monotonic clock and in seconds
    since 1970.
    """

    pid: int
    outputs: tuple[int, ...]
    input_fd: int | None
    terminal_fd: int | None
    started: float
    started_at: float
    setup: SetupUse


def start_child(
    execution: ExecutionSpec, stdin_fd: int | None, *, pid_namespace: bool, job: str | None
) -> Child:
    """Fork, and return once the command's exec succeeded.

    stdin_fd: a file that the shim will write to the command's input. Without a file the input is
    /dev/null, with `stdin_open` a pipe whose write end the shim holds, with `tty` a terminal.
    Raises ChildFailed.
    """
    ours, theirs = (
        _pipes(execution.command, stdin_fd) if execution.command.tty is None else _terminal_ends()
    )
    error_read, error_write = os.pipe2(os.O_CLOEXEC)
    started, started_at = time.monotonic(), time.time()
    pid, to_join = _fork(job)
    if pid == 0:
        _child(execution, theirs, error_write, pid_namespace=pid_namespace, to_join=to_join)
    for fd in {*theirs.stdio, error_write}:
        os.close(fd)
    if theirs.channel is not None:
        theirs.channel.close()
    setup = _await_exec(pid, error_read)
    terminal_fd = None
    if ours.channel is not None:
        # The child sent the terminal before the exec.
        _, (master, terminal_fd), _, _ = socket.recv_fds(ours.channel, 1, 2)
        ours.channel.close()
        ours = _Ends((master,), master, None)
    return Child(pid, ours.stdio, ours.input_fd, terminal_fd, started, started_at, setup)


def _fork(job: str | None) -> tuple[int, str | None]:
    """Return the child's pid, 0 in the child, and the cgroup that the child has to join yet."""
    if job is None:
        return os.fork(), None
    try:
        return job_cgroup.fork_into(job), None
    except OSError:
        # Linux before 5.7, or a container's filter.
        return os.fork(), job


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ends of one side: the shim's outputs and input, or the child's 0, 1 and 2."""

    stdio: tuple[int, ...]
    input_fd: int | None
    channel: socket.socket | None


def _pipes(command: CommandSpec, stdin_fd: int | None) -> tuple[_Ends, _Ends]:
    """Return the shim's ends and the child's."""
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    err_read, err_write = (None, out_write) if command.merge_output else os.pipe2(os.O_CLOEXEC)
    in_write = None
    if stdin_fd is None and not command.stdin_open:
        in_read = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    else:
        in_read, in_write = os.pipe2(os.O_CLOEXEC)
    if command.uid is not None:
        # Else opening /dev/stdout by name is refused after setuid.
        for fd in {out_write, err_write} | (set() if in_write is None else {in_read}):
            os.fchown(fd, command.uid, command.uid)
    outputs = (out_read,) if err_read is None else (out_read, err_read)
    return _Ends(outputs, in_write, None), _Ends((in_read, out_write, err_write), None, None)


def _terminal_ends() -> tuple[_Ends, _Ends]:
    """Return a socket pair through which the child sends the terminal of its mount namespace."""
    ours, theirs = socket.socketpair()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    return _Ends((), None, ours), _Ends((null, null, null), None, theirs)


def _child(
    execution: ExecutionSpec,
    ends: _Ends,
    error_fd: int,
    *,
    pid_namespace: bool,
    to_join: str | None,
) -> NoReturn:
    failed = Failed("internal", 0, "the child ended before exec")
    try:
        if to_join is not None:
            job_cgroup.join(to_join)
        # Hosts whose root lacks CAP_SYS_RESOURCE refuse some values; the shim names that.
        with suppress(PermissionError):
            enter.raise_oom_score()
        enter.enter_and_exec(
            execution,
            _above_stdio(ends.stdio),
            pid_namespace=pid_namespace,
            terminal=ends.channel,
            keep_fd=error_fd,
            before_exec=lambda: os.write(error_fd, _own_use()),
        )
    except enter.EnterFailed as exc:
        failed = Failed(exc.step, exc.errno, str(exc)[:_MAX_TEXT], exc.interpreter)
    except BaseException as exc:
        failed = Failed("internal", 0, f"{type(exc).__name__}: {exc}"[:_MAX_TEXT])
    finally:
        os.write(error_fd, FAILURE.encode(failed))
        os._exit(125)


def _above_stdio(stdio: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the same files at descriptors that the dup2 onto 0-2 cannot overwrite."""
    high = [os.dup(fd) for fd in stdio] if min(stdio) <= 2 else list(stdio)
    while min(high) <= 2:
        high = [os.dup(fd) for fd in high]
    return (high[0], high[1], high[2])


def _own_use() -> bytes:
    """Return the child's use until now as JSON; wait4(2) will count that use with the command's."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return json.dumps([used.ru_utime, used.ru_stime, used.ru_maxrss * 1024]).encode() + b"\n"


def _await_exec(pid: int, error_fd: int) -> SetupUse:
    """Return when the pipe closed by exec; raise ChildFailed with what the child wrote."""
    try:
        answer = _read_all(error_fd)
    finally:
        os.close(error_fd)
    # A death before the exec closes the pipe, too; the wait status tells of the death.
    use, _, failure = (answer or b"").rpartition(b"\n")
    if answer is not None and not failure:
        return SetupUse(*json.loads(use)) if use else SetupUse()
    os.kill(pid, signal.SIGKILL)
    if answer is None:
        raise ChildFailed("exec", 0, f"the exec did not happen within {_EXEC_SECONDS:g} seconds")
    os.waitpid(pid, 0)
    failed = FAILURE.decode(failure)
    raise ChildFailed(failed.step, failed.errno, failed.text, failed.interpreter)


def _read_all(fd: int) -> bytes | None:
    """Read until the writers close the pipe; None after 60 seconds, as for a dead file system."""
    poller = select.poll()
    poller.register(fd, select.POLLIN | select.POLLHUP)
    deadline = time.monotonic() + _EXEC_SECONDS
    answer = b""
    while poller.poll(max(0, int((deadline - time.monotonic()) * 1000))):
        read = os.read(fd, 4096)
        if not read:
            return answer
        answer += read
    return None
