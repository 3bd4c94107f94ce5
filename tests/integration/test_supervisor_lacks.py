# SPDX-License-Identifier: Apache-2.0
"""What a host does not allow costs exactly the feature that needs it, and is named."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import requires_program
from tests.contract.probes import python
from tests.contract.test_memory import BESIDE, BOMBS, GROW, is_oom
from tests.harness import Daemon
from tests.integration.supervisor import SPIN, supervised


@contextlib.contextmanager
def daemon_without(*capabilities: str) -> Iterator[Daemon]:
    """A root daemon that can never have these capabilities, nor can its helpers."""
    requires_program("setpriv")
    drop = ",".join(f"-{name}" for name in capabilities)
    prefix = ["setpriv", f"--bounding-set={drop}", "--"]
    with Daemon(SANDBOX_CGROUP_MODE="off").running(prefix=prefix) as daemon:
        yield daemon


def held(daemon: Daemon) -> Any:
    return daemon.ok("GET", "/healthz")["resource_control"]["enforcement"]


def bomb(daemon: Daemon, kind: str) -> Any:
    made = daemon.create(limits={"memory_bytes": "256M"})
    ran = daemon.execute(made["id"], python(GROW + BOMBS[kind]), timeout_seconds=10)
    daemon.release(made["id"])
    return ran


def spin_cores(daemon: Daemon) -> float:
    made = daemon.create(limits={"memory_bytes": "128M", "cpus": 0.2})
    usage = daemon.execute(made["id"], f"timeout 3 sh -c '{SPIN}'")["usage"]
    daemon.release(made["id"])
    assert usage["cpu_throttled_seconds"] > 0
    return float(usage["cpu_seconds"] / usage["wall_seconds"])


@pytest.mark.usefixtures("requires_root")
def test_without_ptrace_only_what_is_certain_counts_and_io_is_free() -> None:
    with daemon_without("sys_ptrace") as daemon:
        found = held(daemon)
        assert found["io_write_bytes_per_second"]["by"] == "none"
        assert "CAP_SYS_PTRACE" in found["io_write_bytes_per_second"]["detail"]
        assert found["memory_bytes"]["detail"].startswith("advisory: ")
        assert "CAP_SYS_PTRACE" in found["memory_bytes"]["detail"]
        assert any("CAP_SYS_PTRACE" in one for one in daemon.ok("GET", "/v1/host")["missing"])
        assert is_oom(bomb(daemon, "one process"), "sandbox")
        assert is_oom(bomb(daemon, "twenty processes"), "sandbox")
        assert spin_cores(daemon) <= 0.25
        made = daemon.create(limits={"memory_bytes": "256M"})
        ran = daemon.execute(made["id"], python(BESIDE), timeout_seconds=30)
        assert (ran["status"], ran["stdout"]) == ("EXITED", "whole\n")
        assert daemon.execute(made["id"], ["true"])["usage"]["io_read_bytes"] is not None


@pytest.mark.usefixtures("requires_root")
def test_without_sys_admin_processes_are_still_held() -> None:
    """No pid namespace, no private mounts: kills walk the tree, sums go by uid."""
    with daemon_without("sys_admin") as daemon:
        assert "CAP_SYS_ADMIN" in held(daemon)["memory_bytes"]["detail"]
        assert any("pid namespace" in one for one in daemon.ok("GET", "/v1/host")["missing"])
        assert is_oom(bomb(daemon, "one process"), "sandbox")
        assert is_oom(bomb(daemon, "twenty processes"), "sandbox")
        assert spin_cores(daemon) <= 0.25


@pytest.mark.usefixtures("requires_root")
def test_without_nice_and_resource_it_is_late_and_says_so() -> None:
    with daemon_without("sys_nice", "sys_resource") as daemon:
        found = held(daemon)
        assert "late on a busy host" in found["cpus"]["detail"]
        assert "CAP_SYS_RESOURCE" in found["pids"]["detail"]
        missing = " ".join(daemon.ok("GET", "/v1/host")["missing"])
        assert "real-time scheduling" in missing
        assert is_oom(bomb(daemon, "one process"), "sandbox")


# What each has of its own is little, and all of them together are three times the limit.
SLEEPERS = """
import os, time
for _ in range(60):
    if os.fork() == 0: time.sleep(2); os._exit(0)
while 1:
    try: os.wait()
    except ChildProcessError: break
print("whole")
"""


@pytest.mark.usefixtures("requires_root")
def test_without_ptrace_forks_that_sleep_are_not_too_much() -> None:
    with daemon_without("sys_ptrace") as daemon:
        made = daemon.create(limits={"memory_bytes": "96M"})
        ran = daemon.execute(made["id"], python(SLEEPERS), timeout_seconds=30)
        assert (ran["status"], ran["stdout"]) == ("EXITED", "whole\n")
        ran = daemon.execute(made["id"], python(GROW + BOMBS["twenty processes"]))
        assert is_oom(ran, "sandbox")


# CI runs them as a user in the systemd machine: tests/system/test_without_root.py.
without_root = pytest.mark.skipif(os.getuid() == 0, reason="for a user other than root")


@without_root
def test_without_root_memory_is_held_and_what_is_not_is_named() -> None:
    with supervised() as daemon:
        found = held(daemon)
        assert found["memory_bytes"]["by"] == found["cpus"]["by"] == "supervisor"
        assert found["pids"]["by"] == "none"
        assert any(one.startswith("root:") for one in daemon.ok("GET", "/v1/host")["missing"])
        for kind in ("one process", "twenty processes", "memfd"):
            assert is_oom(bomb(daemon, kind), "sandbox")
        made = daemon.create(limits={"memory_bytes": "256M"})
        assert daemon.execute(made["id"], ["echo", "on"])["stdout"] == "on\n"


@without_root
def test_without_root_processors_are_held() -> None:
    with supervised() as daemon:
        assert spin_cores(daemon) <= 0.25
