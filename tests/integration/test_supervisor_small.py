# SPDX-License-Identifier: Apache-2.0
"""Commands that end before anybody looks twice: what is said of them is theirs, and the least limit
holds them."""

from __future__ import annotations

from tests.contract.probes import python
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.supervisor import supervised

MIB = 1 << 20
# Its own peak since its exec.
PEAK = """
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"): print(int(line.split()[1]) * 1024)
"""
# Little by little, so that its time is over only a moment later.
FORKS = """
import os
while 1:
    if os.fork() == 0: os._exit(0)
    os.wait()
"""
daemon = daemon_fixture(supervised)


def test_memory_of_short_commands_is_known_and_their_own(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "64M"})
    own = int(daemon.execute(made["id"], python(PEAK))["stdout"])
    peaks = [
        daemon.execute(made["id"], python("pass"))["usage"]["memory_peak_bytes"] for _ in range(30)
    ]
    # On a busy host one may have ended before anybody looked.
    known = [peak for peak in peaks if peak is not None]
    assert known
    assert max(known) <= own + MIB
    for _ in range(10):
        # May end before anybody looks.
        peak = daemon.execute(made["id"], ["true"])["usage"]["memory_peak_bytes"]
        assert peak is None or 0 < peak <= 4 * MIB


def test_memory_above_what_sets_a_command_up_is_exact(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "256M"})
    code = "x = bytearray(64 << 20); x[::4096] = b'x' * len(x[::4096])\n" + PEAK
    for _ in range(5):
        ran = daemon.execute(made["id"], python(code))
        peak = ran["usage"]["memory_peak_bytes"]
        assert abs(peak - int(ran["stdout"])) <= MIB


def test_the_least_memory_limit_holds_a_small_command(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "4M"})
    for _ in range(40):
        ran = daemon.execute(made["id"], ["true"])
        assert (ran["status"], ran["exit_code"]) == ("EXITED", 0)
    # Over the limit at once: too short to be seen, or killed, and never a failure to start.
    for _ in range(40):
        assert daemon.execute(made["id"], python("pass"))["status"] in {"EXITED", "OOM_KILLED"}


def test_processor_time_that_sets_a_command_up_is_not_its_own(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "64M"})
    used = sorted(daemon.execute(made["id"], ["true"])["usage"]["cpu_seconds"] for _ in range(15))
    assert used[7] < 0.003


def test_processor_time_of_short_children_is_told(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "64M"})
    ran = daemon.execute(made["id"], python(FORKS), limits={"cpu_seconds": 1}, timeout_seconds=30)
    assert ran["status"] == "CPU_TIME_EXCEEDED"
    assert ran["usage"]["cpu_seconds"] < 1.5
