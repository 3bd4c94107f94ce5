# SPDX-License-Identifier: Apache-2.0
"""Bandwidth limits hold on the disk that really backs the state directory, whatever is between."""

from __future__ import annotations

import re

import pytest

from tests.contract.probes import python
from tests.file_systems import daemon_on
from tests.own_disks import daemon_with_images

pytestmark = pytest.mark.timeout(300)
MIB = 1 << 20
RATE = 5 * MIB
TRAILS = {
    "dm": r"disk: dm-\d+ on loop\d+",
    "image": r"disk: \w+",
    "overlay": r"disk: overlay on \w+",
}
# Says how fast the transfer itself was; the first megabyte may be a burst.
PROGRAM = """
import os, time
data = bytes(1 << 20)
fd = os.open("file", os.O_WRONLY | os.O_CREAT)
start = time.monotonic()
for _ in range(30):
    os.write(fd, data)
os.fsync(fd)
print(30 * len(data) / (time.monotonic() - start))
"""


@pytest.mark.parametrize("kind", TRAILS)
@pytest.mark.usefixtures("requires_systemd")
def test_writes_are_as_slow_as_asked(kind: str) -> None:
    # Written to the page cache, and from there to the disk in the kernel's own time.
    with daemon_with_images() if kind == "image" else daemon_on(kind) as daemon:
        sandbox = daemon.create(limits={"io_write_bytes_per_second": RATE})
        held = sandbox["enforcement"]["io_write_bytes_per_second"]
        assert held["by"] == "kernel"
        assert re.search(TRAILS[kind], held["detail"]), held
        ended = daemon.execute(sandbox["id"], python(PROGRAM), timeout_seconds=200)
        assert ended["status"] == "EXITED", ended["stderr"]
        assert 0.5 * RATE <= float(ended["stdout"]) <= 1.1 * RATE
        daemon.release(sandbox["id"])
