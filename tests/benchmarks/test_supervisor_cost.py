# SPDX-License-Identifier: Apache-2.0
"""What the supervisor costs: its processor time beside 50 and 500 sandboxed processes.

`pytest tests/benchmarks -s` prints one JSON object for each case.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.contract.probes import eventually, processes_of, python, start, uid_inside
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.supervisor import cpu_seconds, supervised, supervisor_pid

pytestmark = [pytest.mark.usefixtures("requires_root"), pytest.mark.timeout(180)]

SECONDS = 10.0
# Wakes up a hundred times a second for a little work, as servers and test suites do.
BUSY = """
import os, sys, time
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0: break
while 1:
    sum(range(200))
    time.sleep(float(sys.argv[2]))
"""
CASES = [
    # sandboxes, processes in each, seconds between two wakes of a process, bound on the share
    (1, 50, 1.0, 0.03),
    (10, 5, 0.1, 0.03),
    (50, 1, 0.1, 0.03),
    (1, 500, 1.0, 0.10),
    (10, 50, 0.5, 0.10),
    # Sleepers.
    (4, 1000, 1000.0, 0.20),
]
daemon = daemon_fixture(supervised, SANDBOX_PIDS_LIMIT="1024")


@pytest.mark.parametrize(("sandboxes", "each", "pause", "bound"), CASES)
def test_share_of_a_core(
    daemon: Daemon, sandboxes: int, each: int, pause: float, bound: float
) -> None:
    limit = f"{min(4096, max(128, 16 * each))}M"
    made = [daemon.create(limits={"memory_bytes": limit}) for _ in range(sandboxes)]
    uids = [uid_inside(daemon, one) for one in made]
    for one in made:
        start(daemon, one, python(BUSY, str(each), str(pause)))
    eventually(lambda: all(len(processes_of(uid)) == each for uid in uids), 60)
    pid = supervisor_pid(daemon)
    assert pid is not None
    began, before = time.monotonic(), cpu_seconds(pid)
    # The length of the measurement, not a wait for something.
    time.sleep(SECONDS)
    share = (cpu_seconds(pid) - before) / (time.monotonic() - began)
    for one in made:
        daemon.release(one["id"])
    print(json.dumps({"sandboxes": sandboxes, "processes": sandboxes * each,
                      "wake_seconds": pause, "share_of_a_core": round(share, 4)}))  # fmt: skip
    assert share <= bound
