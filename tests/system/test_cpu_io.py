# SPDX-License-Identifier: Apache-2.0
"""CPU and bandwidth stay at what was asked, measured by the kernel's counters and the clock."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import Daemon

MIB = 1 << 20
RATE = 5 * MIB
IO = {"io_read_bytes_per_second": RATE, "io_write_bytes_per_second": RATE}

SPIN = """
import os
for _ in range(3):
    if os.fork() == 0:
        break
while True:
    pass
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("sandbox", [{"cpus": 1}], indirect=True)
def test_four_spinners_at_one_core(daemon: Daemon, sandbox: Any) -> None:
    argv = ["python3", "-c", SPIN]
    ended = daemon.execute(sandbox["id"], argv, timeout_seconds=20)
    assert ended["status"] == "TIMED_OUT"
    cores = ended["usage"]["cpu_seconds"] / ended["usage"]["wall_seconds"]
    assert 0.95 <= cores <= 1.05
    assert ended["usage"]["cpu_throttled_seconds"] > 0


# Each says how long the transfer itself took: interpreter start and file set-up do not count.
BUFFERED = """
import os, time
data = bytes(1 << 20)
fd = os.open("file", os.O_WRONLY | os.O_CREAT)
start = time.monotonic()
for _ in range(60):
    os.write(fd, data)
os.fsync(fd)
print(60 * len(data) / (time.monotonic() - start))
"""
DIRECT_WRITE = """
import mmap, os, time
data = mmap.mmap(-1, 1 << 20)
fd = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
start = time.monotonic()
for _ in range(60):
    os.write(fd, data)
print(60 * len(data) / (time.monotonic() - start))
"""
DIRECT_READ = """
import mmap, os, time
data = mmap.mmap(-1, 1 << 20)
fd = os.open("file", os.O_RDONLY | os.O_DIRECT)
start = time.monotonic()
while os.readv(fd, [data]):
    pass
size = os.fstat(fd).st_size
print(size / (time.monotonic() - start))
"""
FILL = "dd if=/dev/urandom of=file bs=1M count=60 conv=fsync status=none"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sandbox", [IO], indirect=True)
@pytest.mark.parametrize("program", [BUFFERED, DIRECT_WRITE], ids=["buffered", "direct"])
def test_write_bandwidth(daemon: Daemon, sandbox: Any, program: str) -> None:
    ended = daemon.execute(sandbox["id"], ["python3", "-c", program], timeout_seconds=200)
    assert ended["status"] == "EXITED", ended["stderr"]
    assert 0.75 * RATE <= float(ended["stdout"]) <= 1.05 * RATE
    assert ended["usage"]["io_written_bytes"] >= 60 * MIB


@pytest.mark.timeout(300)
def test_read_bandwidth(daemon: Daemon, sandbox: Any) -> None:
    filled = daemon.execute(sandbox["id"], FILL)
    assert filled["exit_code"] == 0, filled["stderr"]
    daemon.ok("PATCH", f"/v1/sandboxes/{sandbox['id']}", {"limits": IO})
    ended = daemon.execute(sandbox["id"], ["python3", "-c", DIRECT_READ], timeout_seconds=200)
    assert ended["status"] == "EXITED", ended["stderr"]
    assert 0.75 * RATE <= float(ended["stdout"]) <= 1.05 * RATE
    assert ended["usage"]["io_read_bytes"] >= 60 * MIB
