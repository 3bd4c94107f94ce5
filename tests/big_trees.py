# SPDX-License-Identifier: Apache-2.0
"""Trees with very many entries, and how long others wait while one is released."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.contract.probes import python
from tests.contract.test_files import files, get, put
from tests.harness import Daemon

# Directories of a thousand files, some of them deep.
MAKE = """
import os, sys
count = int(sys.argv[1])
top = os.getcwd()
for number in range(0, count, 1000):
    path = f"{top}/{number}" if number % 7000 else f"{top}/{number}/" + "deep/" * 20
    os.makedirs(path)
    os.chdir(path)
    for name in range(min(1000, count - number)):
        os.close(os.open(f"{name}", os.O_CREAT | os.O_WRONLY))
"""


def make_tree(daemon: Daemon, sandbox: Any, count: int) -> None:
    """Fill a sandbox's home with so many files."""
    argv = python(MAKE, str(count))
    made = daemon.execute(sandbox["id"], argv, timeout_seconds=800, wait=False)
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{made['id']}"
    while (ended := daemon.ok("GET", f"{target}?wait=60"))["status"] in ("PENDING", "RUNNING"):
        pass
    assert ended["exit_code"] == 0, ended


def latencies_meanwhile(daemon: Daemon, other: Any, work: Callable[[], None]) -> list[float]:
    """Seconds that other requests take while `work` is done in a thread of its own."""
    put(daemon, other, "f", b"x" * 1000)
    worker = threading.Thread(target=work)
    worker.start()
    taken = []
    while worker.is_alive():
        for ask in (
            lambda: daemon.ok("GET", "/v1/host"),
            lambda: daemon.ok("GET", f"/v1/sandboxes/{other['id']}"),
            lambda: get(daemon, other, "f"),
            lambda: daemon.request("HEAD", files(other, "f")),
        ):
            begin = time.monotonic()
            ask()
            taken.append(time.monotonic() - begin)
        worker.join(0.02)
    return taken


def release_whole(daemon: Daemon, sandbox: Any) -> None:
    """Release it, however often it has to be asked for."""
    while (status := daemon.request("DELETE", f"/v1/sandboxes/{sandbox['id']}").status) != 204:
        assert status == 504
