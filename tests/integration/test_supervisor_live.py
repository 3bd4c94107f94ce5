# SPDX-License-Identifier: Apache-2.0
"""Limits change for what runs already."""

from __future__ import annotations

import pytest

from tests.conftest import unmet
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
        if "CAP_SYS_RESOURCE" in " ".join(daemon.ok("GET", "/v1/host")["missing"]):
            unmet("CAP_SYS_RESOURCE")
        made = daemon.create(limits={"pids": before, "memory_bytes": "256M"})
        running = start(daemon, made, python(FORKS))
        printed(daemon, running, b"on")
        daemon.ok("PATCH", f"/v1/sandboxes/{made['id']}", {"limits": {"pids": after}})
        (daemon.state / "sandboxes" / made["id"] / "home" / "go").touch()
        text = printed(daemon, running, b"forked").decode()
        assert int(text.split()[-1]) == min(after - 1, 60)
        daemon.ok("POST", f"{path_of(running)}/kill")
