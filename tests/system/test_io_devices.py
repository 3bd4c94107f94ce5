# SPDX-License-Identifier: Apache-2.0
"""Bandwidth limits hold on the disk that really backs the state directory, whatever is between."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.contract.probes import python
from tests.file_systems import daemon_on
from tests.harness import Daemon
from tests.own_disks import daemon_with_images

pytestmark = pytest.mark.timeout(300)
MIB = 1 << 20
RATE = 5 * MIB
TRAILS = {
    "dm": r"disk: dm-\d+ on loop\d+ on \w+",
    "image": r"disk: \w+",
    "ext4": r"disk: loop\d+ on \w+",
    "overlay": r"disk: overlay on \w+",
}
# Says how fast the transfer itself was; the first megabyte may be a burst.
PROGRAMS = {
    "buffered": """
import os, time
data = bytes(1 << 20)
fd = os.open("file", os.O_WRONLY | os.O_CREAT)
start = time.monotonic()
for _ in range(30):
    os.write(fd, data)
os.fsync(fd)
print(30 * len(data) / (time.monotonic() - start))
""",
    "direct": """
import mmap, os, time
data = mmap.mmap(-1, 1 << 20)
fd = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
start = time.monotonic()
for _ in range(30):
    os.write(fd, data)
os.fsync(fd)
print(30 * len(data) / (time.monotonic() - start))
""",
}


@pytest.fixture(scope="module", params=TRAILS)
def daemon(request: pytest.FixtureRequest, requires_systemd: None) -> Iterator[Daemon]:
    """A daemon whose state is on such a device."""
    made_on = daemon_with_images() if request.param == "image" else daemon_on(request.param)
    with made_on as made:
        made.kind = request.param  # type: ignore[attr-defined]
        yield made


@pytest.mark.parametrize("how", PROGRAMS)
def test_writes_are_as_slow_as_asked(daemon: Daemon, how: str) -> None:
    limits = {"io_write_bytes_per_second": RATE, "io_read_bytes_per_second": RATE}
    sandbox = daemon.create(limits=limits)
    held = sandbox["enforcement"]["io_write_bytes_per_second"]
    assert held["by"] == "kernel"
    assert re.search(TRAILS[daemon.kind], held["detail"]), held  # type: ignore[attr-defined]
    ended = daemon.execute(sandbox["id"], python(PROGRAMS[how]), timeout_seconds=200)
    assert ended["status"] == "EXITED", ended["stderr"]
    assert 0.5 * RATE <= float(ended["stdout"]) <= 1.1 * RATE
    daemon.release(sandbox["id"])


def test_memory_has_no_device(requires_systemd: None) -> None:
    with daemon_on("tmpfs", SANDBOX_CGROUP_MODE="required") as daemon:
        sandbox = daemon.create()
        held = sandbox["enforcement"]["io_write_bytes_per_second"]
        assert held["by"] == "none"
        assert "no block device" in held["detail"]
        daemon.release(sandbox["id"])
