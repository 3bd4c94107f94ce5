# SPDX-License-Identifier: Apache-2.0
"""Thousands of executions, after which the daemon holds no more than before."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.leftovers import spawner, units_of
from tests.contract.probes import eventually
from tests.harness import Daemon, running_daemon
from tests.system import host

AT_ONCE = 16
WARM_UP = 500
KEPT = 40
# What a pool's thread or a connection that comes and goes may make of difference.
SLACK = 4
MEMORY_SLACK_BYTES = 4 << 20


@dataclass(frozen=True)
class Holdings:
    """What a daemon has: descriptors, threads, memory, files below its directories, units."""

    descriptors: int
    spawner_descriptors: int
    threads: int
    memory_bytes: int
    files: int
    units: int


def holdings(daemon: Daemon) -> Holdings:
    """As they are now."""
    assert daemon.process is not None
    pid, helper = daemon.process.pid, spawner(daemon)
    assert helper is not None
    tops = (daemon.state, daemon.runtime)
    return Holdings(
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        spawner_descriptors=len(os.listdir(f"/proc/{helper}/fd")),
        threads=len(os.listdir(f"/proc/{pid}/task")),
        memory_bytes=host.rss_bytes(pid),
        files=sum(len(files) + len(below) for top in tops for _, below, files in os.walk(top)),
        units=len(units_of(daemon)) if Path("/run/systemd/system").exists() else 0,
    )


def stay_flat(mode: str, count: int) -> None:
    """`count` executions one after another, then as many 16 at a time.

    mode: SANDBOX_CGROUP_MODE.
    """
    with running_daemon(
        SANDBOX_CGROUP_MODE=mode, SANDBOX_MEMORY_LIMIT_BYTES="64M",
        SANDBOX_RETENTION_EXECUTIONS=str(KEPT),
    ) as daemon:  # fmt: skip
        box = daemon.create()["id"]
        for width in (1, AT_ONCE):
            warm = min(WARM_UP, count // 2)
            _execute(daemon, box, warm, width)
            before = _settled(daemon, box)
            _execute(daemon, box, count - warm, width)
            after = _settled(daemon, box)
            sys.stderr.write(f"{count} executions, {width} at a time:\n {before}\n {after}\n")
            assert after.descriptors <= before.descriptors + SLACK
            assert after.spawner_descriptors <= before.spawner_descriptors
            assert after.threads <= before.threads + SLACK
            assert after.files <= before.files + SLACK
            assert after.units <= before.units
            assert after.memory_bytes <= before.memory_bytes + MEMORY_SLACK_BYTES


def _execute(daemon: Daemon, box: str, count: int, width: int) -> None:
    def one(number: int) -> None:
        code = number % 7
        # Some fail, some are not there, some run into their time.
        if code == 6:
            answer = daemon.request(
                "POST", f"/v1/sandboxes/{box}/executions", {"argv": ["no-such"]}
            )
            assert answer.status == 422, answer.body
            return
        if code == 5:
            ended = daemon.execute(box, ["sleep", "60"], timeout_seconds=0.05)
            assert ended["status"] == "TIMED_OUT", ended
            return
        ended = daemon.execute(box, f"echo {number}; exit {code}")
        assert (ended["stdout"], ended["exit_code"]) == (f"{number}\n", code), ended

    with ThreadPoolExecutor(width) as pool:
        list(pool.map(one, range(count)))


def _settled(daemon: Daemon, box: str) -> Holdings:
    """Once the upkeep has removed the records above the bound."""
    records = daemon.state / "sandboxes" / box / "executions"
    eventually(lambda: len(os.listdir(records)) <= KEPT, 30)
    return holdings(daemon)
