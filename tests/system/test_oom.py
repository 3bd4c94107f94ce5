# SPDX-License-Identifier: Apache-2.0
"""No OOM is lost, none is invented, and each is told to the right one."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Daemon
from tests.system import host

MEMORY = "SANDBOX_MEMORY_LIMIT_EXCEEDED"
# 24 MiB of anonymous memory beyond a limit of 16 MiB, by programs that start fast.
BOMB = "exec head -c 40m /dev/zero | tail -c 40m > /dev/null"
SMALL = {"memory_bytes": "16M"}


def bomb(daemon: Daemon, sandbox: str) -> tuple[str, Any]:
    return "oom", daemon.execute(sandbox, BOMB, limits=SMALL)


def killed_by_itself(daemon: Daemon, sandbox: str) -> tuple[str, Any]:
    return "signal", daemon.execute(sandbox, "kill -9 $$", limits=SMALL)


def timed_out(daemon: Daemon, sandbox: str) -> tuple[str, Any]:
    return "timeout", daemon.execute(sandbox, "sleep 1000", limits=SMALL, timeout_seconds=0.3)


def killed_by_caller(daemon: Daemon, sandbox: str) -> tuple[str, Any]:
    running = daemon.execute(sandbox, "sleep 1000", limits=SMALL, wait=False)
    target = f"/v1/sandboxes/{sandbox}/executions/{running['id']}/kill"
    return "kill", daemon.ok("POST", target, {})


EXPECTED = {
    "oom": ("OOM_KILLED", MEMORY, "execution"),
    "signal": ("SIGNALED", None, None),
    "timeout": ("TIMED_OUT", "SANDBOX_TIMEOUT", "execution"),
    "kill": ("KILLED", "KILLED_BY_CALLER", None),
}


@pytest.mark.timeout(3000)
def test_no_oom_is_lost_and_none_invented(
    daemon: Daemon, sandbox: Any, soak_count: Callable[[int], int]
) -> None:
    work = [bomb] * soak_count(200)
    for control in (killed_by_itself, timed_out, killed_by_caller):
        work += [control] * soak_count(50)
    random.Random(1).shuffle(work)
    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(lambda kind: kind(daemon, sandbox["id"]), work))
    got = Counter(
        (kind, execution["status"], execution["error_code"], execution["limit_owner"])
        for kind, execution in ends
    )
    wanted = Counter((kind, *EXPECTED[kind]) for kind, _ in ends)
    assert got == wanted
    for kind, execution in ends:
        assert (execution["usage"]["oom_kills"] > 0) == (kind == "oom")


FORKED = """
import os, time
for _ in range(12):
    if os.fork() == 0:
        kept = bytearray(os.urandom(4096)) * 1536
        time.sleep(1000)
os.wait()
time.sleep(1000)
"""


@pytest.mark.parametrize("sandbox", [{"memory_bytes": "48M"}], indirect=True)
def test_many_small_processes_together(daemon: Daemon, sandbox: Any) -> None:
    ended = daemon.execute(sandbox["id"], ["python3", "-c", FORKED], timeout_seconds=200)
    assert (ended["status"], ended["error_code"]) == ("OOM_KILLED", MEMORY)
    assert ended["limit_owner"] == "sandbox"
    assert ended["usage"]["memory_peak_bytes"] <= 48 << 20


def test_child_ends_its_execution(daemon: Daemon, sandbox: Any) -> None:
    script = f"({BOMB}); echo the parent went on; sleep 1000"
    ended = daemon.execute(sandbox["id"], script, limits=SMALL, timeout_seconds=200)
    assert (ended["status"], ended["error_code"]) == ("OOM_KILLED", MEMORY)
    assert ended["limit_owner"] == "execution"
    assert ended["stdout"] == ""


def has_output(daemon: Daemon, state: str) -> bool:
    return bool(daemon.ok("GET", state)["stdout_bytes"])


WAIT_THEN_BOMB = f"echo up; until [ -e go ]; do sleep 0.05; done; {BOMB}"


def test_a_shim_that_cannot_be_spared_lives_to_tell(daemon: Daemon, sandbox: Any) -> None:
    """Where root lacks CAP_SYS_RESOURCE the OOM killer counts the shim like any other process."""
    target = f"/v1/sandboxes/{sandbox['id']}"
    records = daemon.state / "sandboxes" / sandbox["id"] / "executions"
    for _ in range(5):
        running = daemon.execute(sandbox["id"], WAIT_THEN_BOMB, limits=SMALL, wait=False)
        state = f"{target}/executions/{running['id']}"
        host.until(partial(has_output, daemon, state), 60)
        start = json.loads((records / running["id"] / "start.json").read_text())
        Path(f"/proc/{start['pid']}/oom_score_adj").write_text("0")
        daemon.ok("PUT", f"{target}/files/go", b"")
        ended = daemon.wait(running)
        assert (ended["status"], ended["limit_owner"]) == ("OOM_KILLED", "execution")
        daemon.ok("DELETE", f"{target}/files/go")


def test_the_command_is_in_a_cgroup_that_is_killed_whole(daemon: Daemon, sandbox: Any) -> None:
    running = daemon.execute(sandbox["id"], ["sleep", "1000"], wait=False)
    scope = host.cgroup(running["unit"])
    assert (scope / "cgroup.procs").read_text() == ""
    assert (scope / "cgroup.subtree_control").read_text().split() == ["memory"]
    groups = {name: (scope / name / "memory.oom.group").read_text() for name in ("shim", "job")}
    assert groups == {"shim": "0\n", "job": "1\n"}
    assert len((scope / "shim" / "cgroup.procs").read_text().split()) == 1


HOLD = """
import sys, time
kept = bytearray(b"x" * 4096) * (int(sys.argv[1]) << 8)
print("held", flush=True)
time.sleep(1000)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("sandbox", [{"memory_bytes": "128M"}], indirect=True)
def test_the_sandbox_limit_is_told_to_its_victim_alone(daemon: Daemon, sandbox: Any) -> None:
    """Each scope stays below its own 100 MiB; the three together pass the slice's 128 MiB."""
    own = {"memory_bytes": "100M"}

    def hold(megabytes: int) -> Any:
        argv = ["python3", "-c", HOLD, str(megabytes)]
        return daemon.execute(sandbox["id"], argv, limits=own, wait=False)

    def state(execution: Any) -> Any:
        return daemon.ok("GET", f"/v1/sandboxes/{sandbox['id']}/executions/{execution['id']}")

    neighbour = daemon.create(limits={"memory_bytes": "64M"})
    elsewhere = daemon.execute(neighbour["id"], ["sleep", "1000"], wait=False)
    first, second = hold(30), hold(45)
    host.until(lambda: all(state(e)["stdout_bytes"] for e in (first, second)), 120)
    ends = [state(e) for e in (first, second)]
    assert [e["status"] for e in ends] == ["RUNNING", "RUNNING"]
    third = hold(60)
    three = (first, second, third)
    host.until(lambda: any(state(e)["status"] != "RUNNING" for e in three), 120)
    # The kernel may take a second one while the first is still giving its memory back, and so
    # between any question and the next.
    kill = f"/v1/sandboxes/{sandbox['id']}/executions/%s/kill"
    for execution in three:
        daemon.request("POST", kill % execution["id"], {})
    verdicts = [
        (e["status"], e["error_code"], e["limit_owner"])
        for e in (daemon.wait(execution) for execution in three)
    ]
    spared = ("KILLED", "KILLED_BY_CALLER", None)
    assert set(verdicts) == {("OOM_KILLED", MEMORY, "sandbox"), spared}
    daemon.release(neighbour["id"])
    assert daemon.wait(elsewhere)["status"] == "KILLED"


def test_killed_at_the_limit_but_not_by_it(daemon: Daemon, sandbox: Any) -> None:
    """Page cache fills the scope to its limit; a SIGKILL of the program's own is no OOM."""
    script = "head -c 64m /dev/zero > ~/file; cat ~/file > /dev/null; kill -9 $$"
    ended = daemon.execute(sandbox["id"], script, limits={"memory_bytes": "32M"})
    assert (ended["status"], ended["signal"], ended["error_code"]) == ("SIGNALED", 9, None)
