# SPDX-License-Identifier: Apache-2.0
"""The end of a subreaper and of all below: children, orphans, and whoever forks on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.launch.descent import end_with_descendants
from sandboxd.osutil.pidfd import has_ended, open_pidfd
from tests.contract.probes import eventually

# Nobody else sleeps that long, nor this test in another worker.
NAP = str(97_000_000 + os.getpid())
# A subreaper like a shim: an orphan in a session of its own, a child, and one that forks for ever.
SHIM = """
import os, subprocess, time
from sandboxd.osutil import linux
linux.become_subreaper()
subprocess.run(["sh", "-c", "setsid sleep $NAP & true"])
subprocess.Popen(["sh", "-c", "sleep $NAP & sleep $NAP; true"])
subprocess.Popen(["sh", "-c", "while :; do sleep $NAP & sleep 0.01; done"])
print("up", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def shim() -> Iterator[subprocess.Popen[bytes]]:
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", SHIM],
        cwd=root,
        env={**os.environ, "NAP": NAP},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                end_with_descendants(process.pid, open_pidfd(process.pid), timeout_seconds=5)


def sleepers() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words == f"sleep\0{NAP}\0".encode():
            found.append(path.parent.name)
    return found


@pytest.mark.parametrize("hangs", [False, True])
def test_nobody_below_is_left(shim: subprocess.Popen[bytes], *, hangs: bool) -> None:
    if hangs:
        shim.send_signal(signal.SIGSTOP)
    eventually(lambda: len(sleepers()) >= 3)
    assert end_with_descendants(shim.pid, os.pidfd_open(shim.pid), timeout_seconds=5)
    assert shim.wait(5) == -signal.SIGKILL
    assert sleepers() == []


def test_who_does_not_die_in_time_keeps_its_parent(shim: subprocess.Popen[bytes]) -> None:
    held = open_pidfd(shim.pid)
    try:
        assert not end_with_descendants(shim.pid, os.dup(held), timeout_seconds=-1)
        assert not has_ended(held)
    finally:
        os.close(held)


def test_one_that_has_ended_is_no_error() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        held = os.pidfd_open(process.pid)
    assert end_with_descendants(process.pid, held, timeout_seconds=1)
