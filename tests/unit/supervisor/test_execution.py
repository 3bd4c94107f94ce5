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


def test_what_a_supervisor_of_the_release_before_wrote_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "supervised.json").write_text(
        '{"memory_peak": 5, "pids_peak": 2, "cpu_seconds": 1.5, "io_read": 7, "io_written": 8,'
        ' "cpu_throttled_seconds": 0.5, "oom_kills": 3}'
    )
    (tmp_path / "verdict.json").write_text(
        '{"reason": "oom", "owner": "execution", "limit_bytes": 1, "used_bytes": 2}'
    )
    execution = execution_of(tmp_path)
    report = execution.report()
    assert (report.memory_peak_bytes, report.pids_peak, report.oom_kills) == (5, 2, 3)
    assert (report.cpu_seconds, report.cpu_throttled_seconds) == (1.5, 0.5)
    assert execution.is_condemned
    execution.close()
