# SPDX-License-Identifier: Apache-2.0
"""A program that crashes makes the host's root run nothing: not what core files are piped to."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.probes import python
from tests.harness import Daemon

_PATTERN = Path("/proc/sys/kernel/core_pattern")
_LIMIT = Path("/proc/sys/kernel/core_pipe_limit")
_CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
# What a hostile program does first: core(5) says that 0 does not keep the host from piping.
_LOWER = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[Path]:
    """A file in which the host's program for core files writes a line for each crash."""
    told = tmp_path / "told"
    script = tmp_path / "helper"
    script.write_text(f"#!/bin/sh\ncat > /dev/null\nid -u >> {told}\n")
    script.chmod(0o755)
    told.touch()
    before = {path: path.read_text() for path in (_PATTERN, _LIMIT)}
    _PATTERN.write_text(f"|{script}\n")
    # With a limit the kernel waits for the program before anybody sees the end (core(5)).
    _LIMIT.write_text("16\n")
    try:
        yield told
    finally:
        for path, text in before.items():
            path.write_text(text)


def crash_outside() -> None:
    """A crash of root's own."""
    subprocess.run(
        [sys.executable, "-c", _CRASH],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
        check=False,
    )


@pytest.mark.parametrize("first", ["", _LOWER])
def test_no_program_of_the_hosts_is_run(daemon: Daemon, helper: Path, first: str) -> None:
    made = daemon.create(limits={"memory_bytes": "128M"})
    for _ in range(3):
        ran = daemon.execute(made["id"], python(first + _CRASH))
        assert (ran["status"], ran["signal"]) == ("SIGNALED", 11)
    assert helper.read_text() == ""
    crash_outside()
    assert helper.read_text() == "0\n"
    daemon.release(made["id"])
