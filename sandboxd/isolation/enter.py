# SPDX-License-Identifier: Apache-2.0
"""The child's way from a root process to the command: runs between fork and exec.

This module must not import more than the spawner already has. Each step raises EnterFailed with the
step's name; the caller sends the failure to the shim through a pipe that the exec closes.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping
from typing import NoReturn

from sandboxd.isolation import interpreter, layers, mounts, seccomp
from sandboxd.isolation.terminal import take_terminal
from sandboxd.osutil import linux
from sandboxd.osutil.descriptors import close_all_but
from sandboxd.osutil.processes import set_oom_score_adj
from sandboxd.osutil.signals import reset_signals
from sandboxd.protocol.specification import ExecutionSpec, PlaceSpec

# Raised to +500 while still root: after setuid a lower value than the inherited -1000 is refused,
# but going back to -1000 would not be (proc_pid_oom_score_adj(5)).
_OOM_SCORE_ADJ = 500

# os.get_exec_path imports modules at its first call: after a change of root the library may be out
# of reach.
os.get_exec_path({})


class EnterFailed(Exception):
    """Raised when a step failed. interpreter: the missing interpreter of a program that exists."""

    def __init__(self, step: str, errno: int, text: str, interpreter: str | None = None) -> None:
        super().__init__(f"{step}: {text}")
        self.step = step
        self.errno = errno
        self.text = text
        self.interpreter = interpreter


def enter_and_exec(
    execution: ExecutionSpec,
    stdio: tuple[int, int, int],
    *,
    pid_namespace: bool,
    terminal: socket.socket | None,
    keep_fd: int,
    before_exec: Callable[[], object],
) -> NoReturn:
    """Give up all privileges and become the command.

    stdio: fds for 0, 1, 2. terminal: the socket that gets both ends of a new terminal, None = no
    terminal. keep_fd: the close-on-exec error pipe. before_exec: called last, as the command's own
    identity. Raises EnterFailed; never returns.
    """
    command = execution.command
    step = "session"
    try:
        os.setsid()
        reset_signals()
        for target, fd in enumerate(stdio):
            os.dup2(fd, target, inheritable=True)
        step = "keyring"
        # While still root, whose quota of keys no command can use up.
        linux.leave_session_keyring()
        step = "priority"
        os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
        step = "mounts"
        _enter_place(execution.place, pid_namespace=pid_namespace)
        if terminal is not None and command.tty is not None:
            step = "terminal"
            take_terminal(command.tty.rows, command.tty.cols, command.uid, terminal)
        step = "descriptors"
        close_all_but([keep_fd])
        step = "rlimits"
        _set_rlimits(command.rlimits)
        step = "identity"
        os.umask(0o022)
        if command.uid is not None:
            _drop_privileges(command.uid, command.uid)
        if not pid_namespace:
            linux.set_parent_death_signal(signal.SIGKILL)
        linux.set_no_new_privs()
        step = "cwd"
        os.chdir(command.cwd)
        step = "filter"
        if command.filter is not None:
            seccomp.load(seccomp.Filter(command.filter))
        step = "exec"
        before_exec()
        os.execvpe(command.argv[0], command.argv, command.env)
    except OSError as exc:
        needed = None
        if step == "exec" and isinstance(exc, FileNotFoundError | PermissionError):
            needed = interpreter.needed_by(command.argv[0], command.env)
        raise EnterFailed(step, exc.errno or 0, exc.strerror or str(exc), needed) from exc


def raise_oom_score() -> None:
    """Make this process the OOM killer's choice; to be called while still root."""
    set_oom_score_adj(_OOM_SCORE_ADJ)


def _enter_place(place: PlaceSpec, *, pid_namespace: bool) -> None:
    """Join the sandbox's namespaces, then make the execution's own mounts."""
    if place.own_root is not None:
        freshness = layers.Freshness(place.pins_directory)
        mounts.join(place.pins_directory, place.pins)
        mounts.in_own_root(place.own_root, pid_namespace=pid_namespace, refresh=freshness.ensure)
        freshness.close()
        return
    mounts.join(place.pins_directory, place.pins)
    if place.host_root is not None:
        mounts.in_host_root(place.host_root, pid_namespace=pid_namespace)


def _set_rlimits(wanted: Mapping[str, tuple[int, int]]) -> None:
    """Set each limit, clamped to the hard limit where that cannot be raised."""
    for name, (soft, hard) in wanted.items():
        number = getattr(resource, name)
        _, ceiling = resource.getrlimit(number)
        try:
            resource.setrlimit(number, (soft, hard))
        except (ValueError, PermissionError):
            resource.setrlimit(number, (_least(soft, ceiling), _least(hard, ceiling)))


def _least(value: int, ceiling: int) -> int:
    if ceiling == resource.RLIM_INFINITY:
        return value
    return ceiling if value == resource.RLIM_INFINITY else min(value, ceiling)


def _drop_privileges(uid: int, gid: int) -> None:
    linux.drop_capability_bounding_set()
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    linux.clear_capabilities()
