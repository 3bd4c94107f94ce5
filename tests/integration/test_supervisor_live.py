# SPDX-License-Identifier: Apache-2.0
"""Limits change for what runs already."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.probes import path_of, printed, python, start
from tests.integration.supervisor import supervised

# Forks on demand: a line for each, with the number of children or the error.
FORKS = """
import os, time
print("on", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
n = 0
try:
    while n < 60:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        n += 1
except OSError: pass
print("forked", n, flush=True)
time.sleep(60)
"""


@pytest.mark.usefixtures("requires_root")
@pytest.mark.parametrize(("before", "after"), [(64, 20), (20, 64)])
def test_a_new_limit_of_processes_holds_at_once(before: int, after: int) -> None:
    with supervised() as daemon:
        made = daemon.create(limits={"pids": before, "memory_bytes": "256M"})
        running = start(daemon, made, python(FORKS))
        printed(daemon, running, b"on")
        daemon.ok("PATCH", f"/v1/sandboxes/{made['id']}", {"limits": {"pids": after}})
        (daemon.state / "sandboxes" / made["id"] / "home" / "go").touch()
        text = printed(daemon, running, b"forked").decode()
        assert int(text.split()[-1]) == min(after - 1, 60)
        daemon.ok("POST", f"{path_of(running)}/kill")


def _can_change_others_limits() -> bool:
    """Whether we have CAP_SYS_RESOURCE (24), without which prlimit(2) is refused."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> 24 & 1)


# `missing` names it on a host without; there is nothing to hold there.
if not _can_change_others_limits():
    del test_a_new_limit_of_processes_holds_at_once
