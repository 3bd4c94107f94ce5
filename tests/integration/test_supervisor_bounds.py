# SPDX-License-Identifier: Apache-2.0
"""What one sandbox's processes make long to look at is their own loss: others are held as ever, and
who may be over a limit meanwhile stands still."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from sandboxd.supervisor.memory import PATIENCE_SECONDS
from tests.contract.probes import path_of, printed, python, start
from tests.contract.test_memory import BOMBS, GROW, LIMIT, MIB, OVERSHOOT, is_oom, progress_mib
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.supervisor import supervised, supervisor_pid

pytestmark = [pytest.mark.usefixtures("alone", "requires_root"), pytest.mark.timeout(180)]

PROCESSES = 60
# Each runs now and then, so that what was seen of it is never known to be as it was.
DESCRIPTORS = """
import os, resource, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
first = all(os.fork() for _ in range(int(os.environ["PROCESSES"]) - 1))
fd = os.open("/dev/null", os.O_RDONLY)
while os.dup(fd) < most - 20: pass
os.write(1, b"o")
while not os.path.exists("go"): time.sleep(0.02)
"""
# A page in each mapping, and no two that could be one. What all have, no single one has alone.
MAPPINGS = """
import ctypes, mmap, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_size_t
libc.mprotect.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
count = 30000
start = libc.mmap(None, count << 12, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
ctypes.memset(start, 1, count << 12)
for n in range(0, count, 2): libc.mprotect(start + (n << 12), 4096, 1)
first = all(os.fork() for _ in range(int(os.environ["PROCESSES"]) - 1))
os.write(1, b"o")
while not os.path.exists("go"): time.sleep(0.02)
"""
HOSTILE = {"descriptors": DESCRIPTORS, "mappings": MAPPINGS}
daemon = daemon_fixture(supervised, scope="function")


def most_files() -> int:
    """As many descriptors as a process of this host may have, within reason."""
    return min(100_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def hostile(
    daemon: Daemon, kind: str, then: str = "time.sleep(300)\n", *, processes: int = PROCESSES
) -> tuple[Any, Any]:
    """A sandbox, and an execution in it whose processes are all there."""
    made = daemon.create(limits={"memory_bytes": "512M", "open_files": most_files(), "pids": 128})
    code = HOSTILE[kind] + then
    running = start(daemon, made, python(code), env={"PROCESSES": str(processes)})
    printed(daemon, running, b"o" * processes, 100)
    return made, running


@pytest.mark.parametrize("kind", HOSTILE)
def test_neighbours_are_held_and_served(daemon: Daemon, kind: str) -> None:
    _, running = hostile(daemon, kind)
    pid = supervisor_pid(daemon)
    for bomb in ("memfd", "one process") * 2:
        made = daemon.create(limits={"memory_bytes": LIMIT, "open_files": 4096})
        ran = daemon.execute(made["id"], python(GROW + BOMBS[bomb]), timeout_seconds=30)
        assert is_oom(ran, "sandbox")
        assert progress_mib(daemon, made) * MIB <= LIMIT + 2 * OVERSHOOT
        daemon.release(made["id"])
    assert supervisor_pid(daemon) == pid
    # Nor was it killed for pages that all its processes have in common.
    assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
    daemon.ok("POST", f"{path_of(running)}/kill")


def test_its_own_memory_is_held_as_well(daemon: Daemon) -> None:
    # No more than the count of its disk takes.
    processes = max(2, 240_000 // most_files())
    grow = GROW.replace("import mmap, os, time", "while not first: time.sleep(0.02)")
    made, running = hostile(daemon, "descriptors", grow + BOMBS["memfd"], processes=processes)
    home = daemon.state / "sandboxes" / made["id"] / "home"
    (home / "go").touch()
    ended = daemon.wait(running, 120)
    assert is_oom(ended, "sandbox")
    # It grows by a MiB each millisecond, and stands still when it is not known for so long.
    unknown = int(PATIENCE_SECONDS * 1000) * MIB
    assert progress_mib(daemon, made) * MIB <= 512 * MIB + unknown + 2 * OVERSHOOT
