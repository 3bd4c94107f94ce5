# SPDX-License-Identifier: Apache-2.0
"""Limits that every scheme holds, seen from inside the command."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import path_of, python, start
from tests.harness import Daemon

MIB = 1 << 20
FORKS = """
import os, errno, time
n = 0
try:
    while n < 400:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        n += 1
except OSError as error:
    print(n, errno.errorcode[error.errno])
"""


def holder(sandbox: Any, name: str) -> str:
    by: str = sandbox["enforcement"][name]["by"]
    return by


def test_open_files_are_limited(daemon: Daemon, sandbox: Any) -> None:
    code = """
import os
fds = []
try:
    while True: fds.append(os.dup(0))
except OSError as error:
    print(error.errno, fds[-1])
"""
    ran = daemon.execute(sandbox["id"], python(code), limits={"open_files": 20})
    assert ran["stdout"] == f"{errno.EMFILE} 19\n"
    ran = daemon.execute(sandbox["id"], "ulimit -n; ulimit -Hn", limits={"open_files": 20})
    assert ran["stdout"] == "20\n20\n"


def test_a_file_s_size_is_limited(daemon: Daemon, sandbox: Any) -> None:
    script = "trap '' XFSZ; head -c 3000000 /dev/zero > big; wc -c < big"
    ran = daemon.execute(sandbox["id"], script, limits={"file_size_bytes": MIB})
    assert ran["stdout"].strip() == str(MIB)


def test_core_files_are_off(daemon: Daemon, sandbox: Any) -> None:
    assert daemon.execute(sandbox["id"], "ulimit -c; ulimit -Hc")["stdout"] == "0\n0\n"
    ran = daemon.execute(sandbox["id"], "kill -SEGV $$")
    assert (ran["status"], ran["signal"]) == ("SIGNALED", 11)
    assert daemon.execute(sandbox["id"], "ls -A")["stdout"] == ""


@pytest.mark.usefixtures("requires_root")
def test_forks_stop_at_the_limit_of_processes(daemon: Daemon, create: Create) -> None:
    made = create(limits={"pids": 40})
    assert holder(made, "pids") != "none"
    ran = daemon.execute(made["id"], python(FORKS), timeout_seconds=30)
    count, error = ran["stdout"].split()
    assert error == "EAGAIN"
    assert 30 <= int(count) <= 40
    assert ran["leftovers_killed"] == int(count)
    assert (ran["error_code"], ran["limit_owner"]) == ("SANDBOX_PIDS_LIMIT_REACHED", "sandbox")
    assert ran["usage"]["pids_peak"] == 40
    assert daemon.execute(made["id"], "true & wait; echo fine")["stdout"] == "fine\n"


@pytest.mark.usefixtures("requires_root")
def test_who_stays_below_the_limit_of_processes_is_told_nothing(
    daemon: Daemon, create: Create
) -> None:
    made = create(limits={"pids": 20})
    ran = daemon.execute(made["id"], "for n in 1 2 3 4 5; do sleep 300 & done; exit 3")
    assert (ran["exit_code"], ran["error_code"], ran["leftovers_killed"]) == (3, None, 5)
    # At least: the shell and its children.
    assert 6 <= ran["usage"]["pids_peak"] <= 20
    alone = create(limits={"pids": 1})
    ran = daemon.execute(alone["id"], ["true"])
    assert (ran["exit_code"], ran["error_code"]) == (0, None)


@pytest.mark.usefixtures("requires_root")
def test_a_fork_bomb_is_over_with_its_timeout(daemon: Daemon, create: Create) -> None:
    bomb, neighbour = create(limits={"pids": 64}), create()
    running = start(daemon, bomb, "f() { f | f & }; f; sleep 300", timeout_seconds=2)
    for _ in range(3):
        assert daemon.execute(neighbour["id"], ["echo", "on"])["stdout"] == "on\n"
    assert daemon.wait(running)["status"] in {"TIMED_OUT", "EXITED"}
    assert daemon.execute(bomb["id"], "true | cat; echo fine")["stdout"] == "fine\n"


def test_more_memory_than_allowed_is_not_had(daemon: Daemon, sandbox: Any) -> None:
    """Either refused by the kernel inside, or an OOM kill; never a success."""
    code = "x = bytearray(300 << 20); x[::4096] = b'x' * len(x[::4096]); print('had it')"
    ran = daemon.execute(sandbox["id"], python(code))
    assert "had it" not in ran["stdout"]
    if ran["status"] == "EXITED":
        assert "MemoryError" in ran["stderr"]
    else:
        assert (ran["status"], ran["error_code"]) == (
            "OOM_KILLED", "SANDBOX_MEMORY_LIMIT_EXCEEDED"
        )  # fmt: skip


def test_an_execution_s_own_memory_limit_is_held(daemon: Daemon, sandbox: Any) -> None:
    # Longer than a supervisor's looks are apart.
    code = "x = bytearray(100 << 20); x[::4096] = b'x' * len(x[::4096])\n"
    code += "import time; time.sleep(0.5); print('had it')"
    assert daemon.execute(sandbox["id"], python(code))["stdout"] == "had it\n"
    ran = daemon.execute(sandbox["id"], python(code), limits={"memory_bytes": 64 * MIB})
    assert (ran["status"], ran["stdout"]) == ("OOM_KILLED", "")


def weight(unit: str) -> str:
    [directory] = Path("/sys/fs/cgroup").rglob(unit)
    return (directory / "cpu.weight").read_text().strip()


def test_a_weight_is_held_by_the_kernel_or_by_nobody(
    daemon: Daemon, create: Create, scheme: str
) -> None:
    made = create(limits={"cpu_weight": 50})
    # A share bounds nobody: an execution's may be above its sandbox's.
    executions = {
        own: start(daemon, made, ["sleep", "300"], limits={"cpu_weight": own}) for own in (20, 300)
    }
    target = f"/v1/sandboxes/{made['id']}"
    by = "kernel" if scheme == "systemd" else "none"
    for given in (50, 200, 7):
        changed = daemon.ok("PATCH", target, {"limits": {"cpu_weight": given}})
        assert (changed["limits"]["cpu_weight"], holder(changed, "cpu_weight")) == (given, by)
        for own, running in executions.items():
            told = daemon.ok("GET", path_of(running))
            assert (told["limits"]["cpu_weight"], holder(told, "cpu_weight")) == (own, by)
            if scheme == "systemd":
                assert (weight(made["unit"]), weight(running["unit"])) == (str(given), str(own))


def test_a_weight_need_be_held_where_one_is_asked_for(
    daemon: Daemon, create: Create, scheme: str
) -> None:
    """`require_by` without names is of all limits, and of the weight that a request has."""
    bounds = create()["enforcement"]
    all_held = all(held["by"] != "none" for name, held in bounds.items() if name != "cpu_weight")
    for limits, holds in (({}, True), ({"cpu_weight": 50}, scheme == "systemd")):
        body = {"require_by": "any", "limits": limits}
        answer = daemon.request("POST", "/v1/sandboxes", body)
        assert answer.status == (201 if all_held and holds else 400), answer.body
        if answer.status == 201:
            daemon.release(answer.json["id"])


def test_healthz_claims_only_what_something_enforces(daemon: Daemon, sandbox: Any) -> None:
    control = daemon.ok("GET", "/healthz")["resource_control"]
    named = {"memory": ["memory_bytes"], "cpu": ["cpus"], "pids": ["pids"],
             "disk": ["disk_bytes"],
             "io": ["io_read_bytes_per_second", "io_write_bytes_per_second"]}  # fmt: skip
    for quota, limits in named.items():
        claimed = control[f"sandbox_{quota}_quota"]
        assert claimed in (True, False)
        for name in limits:
            assert control["enforcement"][name]["by"] == holder(sandbox, name)
            if claimed:
                assert holder(sandbox, name) != "none"


def test_a_run_of_many_at_once_is_bounded(daemon: Daemon, sandbox: Any) -> None:
    running = [start(daemon, sandbox, ["sleep", "300"]) for _ in range(64)]
    body = {"argv": ["true"]}
    answer = daemon.request("POST", f"/v1/sandboxes/{sandbox['id']}/executions", body)
    assert (answer.status, answer.code) == (429, "EXECUTION_LIMIT_REACHED")
    assert answer.json["error"]["details"] == {"maximum": 64, "running": 64}
    assert int(answer.headers["Retry-After"]) > 0
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{running[0]['id']}"
    daemon.wait(daemon.ok("POST", f"{target}/kill"))
    assert daemon.execute(sandbox["id"], ["true"])["exit_code"] == 0
