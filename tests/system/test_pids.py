# SPDX-License-Identifier: Apache-2.0
"""A fork bomb meets its limit, is named, hurts no neighbour and dies whole."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.harness import Daemon
from tests.system import host

BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sandbox", [{"pids": 64}], indirect=True)
def test_bomb_and_neighbour(daemon: Daemon, sandbox: Any) -> None:
    uid = int(daemon.execute(sandbox["id"], ["id", "-u"])["stdout"])
    bomb = daemon.execute(sandbox["id"], ["python3", "-c", BOMB], wait=False)
    pids = host.cgroup(bomb["unit"]) / "pids.current"
    # 64 of the program's and the shim.
    host.until(lambda: int(pids.read_text()) == 65, 60)

    neighbour = daemon.create(limits={"memory_bytes": "64M"})
    assert daemon.execute(neighbour["id"], ["echo", "here"])["stdout"] == "here\n"
    daemon.release(neighbour["id"])

    target = f"/v1/sandboxes/{sandbox['id']}/executions/{bomb['id']}/kill"
    ended = daemon.ok("POST", target, {})
    assert ended["status"] == "KILLED"
    assert ended["usage"]["pids_denied"] > 0
    assert ended["usage"]["pids_peak"] == 64
    assert host.processes_of(uid) == []
    assert daemon.execute(sandbox["id"], ["echo", "again"])["stdout"] == "again\n"


def until_denied(children: int) -> list[str]:
    code = (
        "import os, time\n"
        f"for _ in range({children}):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(1000)\n"
    )
    return ["python3", "-c", code]


@pytest.mark.parametrize("sandbox", [{"pids": 64}], indirect=True)
def test_result_names_the_limit(daemon: Daemon, sandbox: Any) -> None:
    ended = daemon.execute(sandbox["id"], until_denied(100))
    assert (ended["status"], ended["exit_code"]) == ("EXITED", 1)
    assert (ended["error_code"], ended["limit_owner"]) == ("SANDBOX_PIDS_LIMIT_REACHED", "sandbox")
    assert ended["usage"]["pids_denied"] > 0
    assert ended["leftovers_killed"] == 63

    own = daemon.execute(sandbox["id"], until_denied(100), limits={"pids": 16})
    assert (own["error_code"], own["limit_owner"]) == ("SANDBOX_PIDS_LIMIT_REACHED", "execution")

    below = daemon.execute(sandbox["id"], until_denied(20))
    assert (below["status"], below["error_code"], below["usage"]["pids_denied"]) == (
        "EXITED", None, 0,
    )  # fmt: skip


@pytest.mark.parametrize("sandbox", [{"pids": 40}], indirect=True)
def test_limit_holds_for_the_sum_of_executions(daemon: Daemon, sandbox: Any) -> None:
    """30 and 30 do not fit into 40, although each alone would."""
    argv = until_denied(29)
    argv[2] += "time.sleep(1000)\n"
    first = daemon.execute(sandbox["id"], argv, wait=False)
    pids = host.cgroup(first["unit"]) / "pids.current"
    host.until(lambda: int(pids.read_text()) == 31, 60)
    started = time.monotonic()
    second = daemon.execute(sandbox["id"], argv)
    assert time.monotonic() - started < 60
    assert (second["error_code"], second["limit_owner"]) == (
        "SANDBOX_PIDS_LIMIT_REACHED", "sandbox",
    )  # fmt: skip
