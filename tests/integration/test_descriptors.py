# SPDX-License-Identifier: Apache-2.0
"""A daemon without descriptors says so, by the right name, and recovers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import requires_program
from tests.contract.probes import executions, path_of
from tests.harness import Daemon

DESCRIPTORS = 48


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    requires_program("prlimit")
    prefix = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", "--"]
    made = Daemon(SANDBOX_CGROUP_MODE="off", SANDBOX_MEMORY_LIMIT_BYTES="64M")
    with made.running(prefix=prefix) as running:
        yield running


def test_no_descriptors_left_is_a_matter_of_capacity(daemon: Daemon) -> None:
    made = daemon.create()
    body = {"argv": ["sleep", "300"], "wait": False}
    running = []
    while True:
        answer = daemon.request("POST", executions(made), body)
        if answer.status != 201:
            break
        running.append(answer.json)
        assert len(running) < DESCRIPTORS
    assert (answer.status, answer.code) == (503, "CAPACITY_EXCEEDED"), answer.body
    assert "Too many open files" in answer.json["error"]["message"]
    for one in running:
        assert daemon.ok("GET", path_of(one))["status"] == "RUNNING"
    assert daemon.ok("POST", f"{path_of(running[0])}/kill", {})["status"] == "KILLED"
    assert daemon.ok("POST", f"{path_of(running[1])}/kill", {})["status"] == "KILLED"
    assert daemon.execute(made["id"], ["echo", "again"])["stdout"] == "again\n"
