# SPDX-License-Identifier: Apache-2.0
"""Many sandboxes beside one cost it nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness import Daemon
from tests.system import host

BATCHES, EXECUTIONS = 4, 5


def pid1_seconds_per_execution(daemon: Daemon, sandbox: str) -> float:
    """The least of all batches: an emulated processor's time goes on while the host is busy."""

    def batch() -> float:
        before = host.cpu_seconds(1)
        for _ in range(EXECUTIONS):
            assert daemon.execute(sandbox, ["true"])["exit_code"] == 0
        return (host.cpu_seconds(1) - before) / EXECUTIONS

    return min(batch() for _ in range(BATCHES))


@pytest.mark.timeout(3000)
def test_an_execution_costs_the_same_among_many(
    daemon: Daemon,
    soak_count: Callable[[int], int],
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    limits = {"memory_bytes": "8M"}
    own = daemon.create(limits={"memory_bytes": "64M"})["id"]
    pid1_seconds_per_execution(daemon, own)
    alone = pid1_seconds_per_execution(daemon, own)

    def neighbour(_: int) -> str:
        made = daemon.create(limits=limits)["id"]
        daemon.execute(made, ["sleep", "100000"], wait=False, timeout_seconds=100000)
        return str(made)

    with ThreadPoolExecutor(4) as pool:
        others = list(pool.map(neighbour, range(soak_count(300))))
    among = pid1_seconds_per_execution(daemon, own)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(daemon.release, [*others, own]))
    record_testsuite_property("pid1_seconds_alone", alone)
    record_testsuite_property("pid1_seconds_among", among)
    assert among <= 1.5 * alone
