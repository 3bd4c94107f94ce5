# SPDX-License-Identifier: Apache-2.0
"""Roots and networks under systemd, where the spawner is a service of its own."""

from __future__ import annotations

import os

import pytest

from tests.contract.probes import eventually, printed, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.test_roots import mounted, pins, said, spawner

LOOK = "stat -Lc %i /proc/self/ns/net /proc/self/ns/ipc; cat /dev/shm/x /tmp/x"
daemon = daemon_fixture(
    scope="function",
    needs=["requires_systemd"],
    SANDBOX_MEMORY_LIMIT_BYTES="128M",
    SANDBOX_CGROUP_MODE="required",
    SANDBOX_ISOLATION="strict",
)


@pytest.mark.timeout(300)
def test_a_strict_sandbox_keeps_its_place_over_the_death_of_all_helpers(daemon: Daemon) -> None:
    made, kept = daemon.create(), daemon.create(isolation="standard")
    assert (made["isolation"], made["network"]) == ("strict", "loopback")
    assert said(daemon, made, "echo kept | tee /dev/shm/x > /tmp/x; cat /proc/kallsyms") == ""
    before = said(daemon, made, LOOK)
    running = start(daemon, made, "echo up; exec sleep 300")
    printed(daemon, running, b"up")
    os.kill(spawner(daemon), 9)
    daemon.kill()
    daemon.start()
    assert eventually(lambda: said(daemon, made, LOOK)) == before
    target = f"/v1/sandboxes/{made['id']}/executions/{running['id']}"
    assert daemon.ok("GET", target)["status"] == "RUNNING"
    daemon.release(made["id"])
    assert not pins(daemon, made).exists()
    assert len(mounted(daemon)) == 1 + len(list(pins(daemon, kept).iterdir()))
    daemon.release(kept["id"])
    assert mounted(daemon) == [f"{daemon.runtime}/pins"]


@pytest.mark.timeout(300)
def test_the_memory_of_shm_is_the_sandboxs_and_outlives_the_execution(daemon: Daemon) -> None:
    made = daemon.create()
    said(daemon, made, "head -c 40M /dev/zero > /dev/shm/x")
    grow = ["python3", "-c", "x = bytearray(100 << 20)"]
    ended = daemon.execute(made["id"], grow)
    assert (ended["status"], ended["limit_owner"]) == ("OOM_KILLED", "sandbox")
    said(daemon, made, "rm /dev/shm/x")
    assert daemon.execute(made["id"], grow)["exit_code"] == 0
