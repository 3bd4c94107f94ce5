# SPDX-License-Identifier: Apache-2.0
"""Executions as the supervisor sees them, with this process as their shim."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandboxd.protocol.supervision import Caps, Entry
from sandboxd.supervisor.execution import Execution
from sandboxd.supervisor.host import Abilities
from sandboxd.supervisor.process import Process

ABILITIES = Abilities(1, False, False, False, True, False, "other", ())


@contextmanager
def forked() -> Iterator[Process]:
    """A child that has executed nothing, as what makes a command's place."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    process = Process(pid)
    process.look()
    try:
        yield process
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def execution_of(directory: Path) -> Execution:
    shim = Process(os.getpid())
    shim.look()
    entry = Entry("mnopqrstuvwx", str(directory), shim.pid, shim.start_time, Caps())
    shim.close()
    return Execution(entry, ABILITIES, 0.0)


def test_what_makes_the_place_of_a_command_does_not_count(tmp_path: Path) -> None:
    execution = execution_of(tmp_path)
    with forked() as first:
        execution.meet(first, None)
        execution.look_at_memory()
        assert first.is_setup
        assert first.resident_bytes == 0
        execution.close()


def test_an_orphan_that_is_met_with_the_command_is_none_that_makes_its_place(
    tmp_path: Path,
) -> None:
    """Whichever number is the lower one: numbers begin anew."""
    execution = execution_of(tmp_path)
    with forked() as one, forked() as other:
        execution.meet(one, None)
        execution.meet(other, None)
        execution.look_at_memory()
        assert one.resident_bytes > 0
        assert other.resident_bytes > 0
        execution.close()
