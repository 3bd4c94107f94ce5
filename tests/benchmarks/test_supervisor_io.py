# SPDX-License-Identifier: Apache-2.0
"""The supervisor holds bytes read and written by SIGSTOP and SIGCONT, and calls it advisory."""

from __future__ import annotations

from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.supervisor import home, supervised

MIB = 1 << 20
RATE = 20 * MIB
daemon = daemon_fixture(supervised)


def test_writes_are_slowed_down(daemon: Daemon) -> None:
    made = daemon.create(limits={"io_write_bytes_per_second": RATE, "memory_bytes": "256M"})
    held = made["enforcement"]["io_write_bytes_per_second"]
    assert held["by"] == "supervisor"
    assert held["detail"].startswith("advisory")
    ran = daemon.execute(made["id"], "timeout 10 dd if=/dev/zero of=f bs=1M 2>/dev/null; sync f")
    usage = ran["usage"]
    size = (home(daemon, made["id"]) / "f").stat().st_size
    daemon.release(made["id"])
    assert size >= 100 * MIB
    assert usage["io_written_bytes"] >= size * 0.95
    assert 0.7 * RATE <= usage["io_written_bytes"] / usage["wall_seconds"] <= 1.3 * RATE


def test_four_writers_share_one_rate(daemon: Daemon) -> None:
    made = daemon.create(limits={"io_write_bytes_per_second": RATE, "memory_bytes": "256M"})
    script = "for i in 1 2 3 4; do timeout 10 dd if=/dev/zero of=f$i bs=1M 2>/dev/null & done; wait"
    usage = daemon.execute(made["id"], script)["usage"]
    daemon.release(made["id"])
    assert 0.7 * RATE <= usage["io_written_bytes"] / usage["wall_seconds"] <= 1.3 * RATE


def test_other_directions_are_not_slowed(daemon: Daemon) -> None:
    """Programs and libraries that are not cached are read, too: not quite nothing."""
    made = daemon.create(limits={"io_read_bytes_per_second": MIB, "memory_bytes": "256M"})
    ran = daemon.execute(made["id"], "head -c 100M /dev/zero > f")
    daemon.release(made["id"])
    assert ran["usage"]["cpu_throttled_seconds"] < 1
