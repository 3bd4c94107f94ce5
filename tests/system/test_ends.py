# SPDX-License-Identifier: Apache-2.0
"""However a command ends, all of it ends; output is exact and the daemon's memory flat."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.harness import Daemon
from tests.system import host

MIB = 1 << 20

STUBBORN = """
import os, signal, sys, time
print("partial", flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def live():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)
for kind in ("session", "double", "stopped"):
    if os.fork() == 0:
        if kind == "session":
            os.setsid()
        if kind == "double":
            os.setsid()
            if os.fork():
                os._exit(0)
        if kind == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        live()
live()
"""


def test_timeout_empties_the_tree(daemon: Daemon, sandbox: Any) -> None:
    uid = int(daemon.execute(sandbox["id"], ["id", "-u"])["stdout"])
    argv = ["python3", "-c", STUBBORN]
    running = daemon.execute(sandbox["id"], argv, timeout_seconds=5, wait=False)
    host.until(lambda: len(host.processes_of(uid)) >= 4)
    ended = daemon.wait(running)
    assert host.processes_of(uid) == []
    assert (ended["status"], ended["stdout"]) == ("TIMED_OUT", "partial\n")
    assert ended["leftovers_killed"] == 3
    assert 5 <= ended["usage"]["wall_seconds"] < 6


def test_output_cap_is_exact(daemon: Daemon, sandbox: Any) -> None:
    assert daemon.process is not None
    before = host.rss_bytes(daemon.process.pid)
    ended = daemon.execute(sandbox["id"], ["yes"], max_output_bytes=MIB)
    assert (ended["status"], ended["error_code"]) == (
        "OUTPUT_LIMIT", "SANDBOX_OUTPUT_LIMIT_EXCEEDED",
    )  # fmt: skip
    assert (ended["stdout_bytes"], ended["stdout_truncated"]) == (MIB, True)
    assert ended["stdout"] == "y\n" * (MIB // 2)
    # The answer itself is a MiB, several times over while it is put together.
    assert host.rss_bytes(daemon.process.pid) - before < 16 * MIB
    assert daemon.execute(sandbox["id"], ["echo", "usable"])["stdout"] == "usable\n"


@pytest.mark.timeout(900)
def test_a_gigabyte_of_output_leaves_the_daemon_flat(daemon: Daemon, sandbox: Any) -> None:
    assert daemon.process is not None
    before = host.rss_bytes(daemon.process.pid)
    running = daemon.execute(
        sandbox["id"], ["cat", "/dev/zero"], max_output_bytes=1 << 30, timeout_seconds=600,
        limits={"io_write_bytes_per_second": "200M"}, wait=False,
    )  # fmt: skip
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{running['id']}"
    peak = before
    deadline = time.monotonic() + 800
    while True:
        ended = daemon.ok("GET", f"{target}?wait=1")
        peak = max(peak, host.rss_bytes(daemon.process.pid))
        if ended["status"] != "RUNNING" or time.monotonic() > deadline:
            break
    assert (ended["status"], ended["stdout_bytes"]) == ("OUTPUT_LIMIT", 1 << 30)
    assert peak - before <= 16 * MIB
