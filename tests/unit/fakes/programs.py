# SPDX-License-Identifier: Apache-2.0
"""What commands do that no process runs."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandboxd.core.model import Command
from sandboxd.errors import ExecutionNotStarted


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
    """Every command runs until a test ends it."""
    return Program(seconds=None)


def always(program: Program) -> Programs:
    """Every command does the same."""
    return lambda _command: program


def not_found(name: str) -> ExecutionNotStarted:
    """What the shim says of a program that is not there."""
    number = errno.ENOENT
    cause = os.strerror(number)
    details = {"step": "exec", "errno": number, "cause": cause, "text": ""}
    return ExecutionNotStarted(f"cannot execute {name!r}: {cause}", details=details)


def known(programs: Mapping[str, Programs]) -> Programs:
    """Commands by the name of their program; others are not found."""

    def find(command: Command) -> Program:
        name = command.argv[0]
        if name not in programs:
            raise not_found(name)
        return programs[name](command)

    return find
