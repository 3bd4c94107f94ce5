# SPDX-License-Identifier: Apache-2.0
"""Mode off on a host with systemd: spawner and supervisor are services, no slice is made."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.contract.probes import python
from tests.contract.test_memory import BOMBS, GROW, is_oom
from tests.harness import Daemon, running_daemon
from tests.system import host


@pytest.fixture(scope="module")
def helpers() -> dict[str, str]:
    """Role -> unit, once the daemon runs."""
    return {}


@pytest.fixture(scope="module")
def daemon(requires_systemd: None, helpers: dict[str, str]) -> Iterator[Daemon]:
    before = host.sandboxd_units()
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        made = host.sandboxd_units() - before
        helpers |= {unit.rpartition("-")[2].removesuffix(".service"): unit for unit in made}
        assert sorted(helpers) == ["spawner", "supervisor"]
        yield daemon
    assert host.sandboxd_units() == before


@pytest.fixture
def sandbox(daemon: Daemon) -> Iterator[Any]:
    made = daemon.create(limits={"memory_bytes": "256M"})
    yield made
    daemon.release(made["id"])


def main_pid(unit: str) -> int:
    return int(host.show(unit, "MainPID")["MainPID"])


def another_pid(unit: str, before: int) -> bool:
    return main_pid(unit) not in (0, before)


def test_a_sum_is_held_and_said_to_be_the_supervisor_s(daemon: Daemon, sandbox: Any) -> None:
    assert sandbox["scheme"] == "rlimit"
    assert sandbox["unit"] is None
    assert sandbox["enforcement"]["memory_bytes"]["by"] == "supervisor"
    ran = daemon.execute(sandbox["id"], python(GROW + BOMBS["one process"]))
    assert is_oom(ran, "sandbox")


@pytest.mark.parametrize("role", ["spawner", "supervisor"])
def test_systemd_starts_it_again(
    daemon: Daemon, helpers: dict[str, str], sandbox: Any, role: str
) -> None:
    running = daemon.execute(sandbox["id"], ["sleep", "1000"], wait=False)
    unit = helpers[role]
    for _ in range(7):
        pid = main_pid(unit)
        os.kill(pid, signal.SIGKILL)
        host.until(partial(another_pid, unit, pid), 30)
    assert daemon.execute(sandbox["id"], ["echo", "on"])["stdout"] == "on\n"
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{running['id']}"
    assert daemon.ok("GET", target)["status"] == "RUNNING"
    ran = daemon.execute(sandbox["id"], python(GROW + BOMBS["one process"]))
    assert is_oom(ran, "sandbox")


def test_a_killed_daemon_finds_them_again(
    daemon: Daemon, helpers: dict[str, str], sandbox: Any
) -> None:
    running = daemon.execute(sandbox["id"], ["sleep", "1000"], wait=False)
    before = {unit: main_pid(unit) for unit in helpers.values()}
    daemon.kill()
    daemon.start()
    assert {unit: main_pid(unit) for unit in helpers.values()} == before
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{running['id']}"
    assert daemon.ok("GET", target)["status"] == "RUNNING"
    assert daemon.ok("POST", f"{target}/kill", {})["status"] == "KILLED"
