# SPDX-License-Identifier: Apache-2.0
"""Programs as data: what commands do where no process runs."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandboxd.core.model import Command
from sandboxd.errors import ExecutionNotStarted
from sandboxd.launch.failures import not_started
from sandboxd.protocol.link import Failed

_STACK_BYTES = 8 << 20
_POINTER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Program:
    """Prints at once, and ends so many seconds later; None = when a test says so."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    seconds: float | None = 0.0


# What a command does. Raises ExecutionNotStarted.
Programs = Callable[[Command], Program]


def endless(_command: Command) -> Program:
    """The endless program, for every command."""
    return Program(seconds=None)


def always(program: Program) -> Programs:
    """Every command does the same."""
    return lambda _command: program


def not_found(name: str) -> ExecutionNotStarted:
    """The error for a program that does not exist."""
    return _not_executed(name, errno.ENOENT)


def check_size(command: Command, env: Mapping[str, str]) -> None:
    """Raise ExecutionNotStarted where execve(2) would refuse: the strings, and a pointer for each,
    have at most a quarter of the stack's limit."""
    strings = [*command.argv, *(f"{name}={value}" for name, value in env.items())]
    if sum(len(os.fsencode(text)) + 1 + _POINTER_BYTES for text in strings) > _STACK_BYTES // 4:
        raise _not_executed(command.argv[0], errno.E2BIG)


def _not_executed(name: str, number: int) -> ExecutionNotStarted:
    return not_started(Failed("exec", number, ""), {"exec": name})


def known(programs: Mapping[str, Programs]) -> Programs:
    """Commands by the name of their program; others are not found."""

    def find(command: Command) -> Program:
        name = command.argv[0]
        if name not in programs:
            raise not_found(name)
        return programs[name](command)

    return find
