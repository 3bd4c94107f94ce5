# SPDX-License-Identifier: Apache-2.0
"""Metrics of a sandbox against what its commands do; unknown is null, and never 0."""

from __future__ import annotations

import time
from typing import Any

from tests.contract.conftest import Create
from tests.contract.probes import eventually, python
from tests.harness import Daemon

MIB = 1 << 20


def metrics(daemon: Daemon, sandbox: Any) -> Any:
    return daemon.ok("GET", f"/v1/sandboxes/{sandbox['id']}/metrics")


def await_memory(daemon: Daemon, sandbox: Any, at_least: int) -> Any:
    deadline = time.monotonic() + 30
    while (now := metrics(daemon, sandbox))["memory"]["current_bytes"] < at_least:
        assert time.monotonic() < deadline, now
    return now


def test_an_idle_sandbox_uses_nothing(daemon: Daemon, sandbox: Any) -> None:
    now = metrics(daemon, sandbox)
    assert now["sandbox_id"] == sandbox["id"]
    assert now["memory"]["current_bytes"] < 4 * MIB
    assert now["pids"]["current"] == 0
    assert now["executions"] == {"running": 0, "total": 0}


def _anon_bytes(daemon: Daemon, sandbox: Any, least: int) -> int:
    found = int(metrics(daemon, sandbox)["memory"]["anon_bytes"])
    return found if found >= least else 0


def test_a_running_execution_is_seen(daemon: Daemon, sandbox: Any, scheme: str) -> None:
    hold = "b = b'x' * (48 << 20); import time; time.sleep(300)"
    running = daemon.execute(sandbox["id"], python(hold), wait=False)
    now = await_memory(daemon, sandbox, 48 * MIB)
    assert now["memory"]["current_bytes"] < 96 * MIB
    assert now["memory"]["peak_bytes"] >= 48 * MIB
    assert now["pids"]["current"] == 1
    assert now["executions"] == {"running": 1, "total": 1}
    if scheme == "systemd":
        # The kernel sums it up a little later than the whole.
        anon = eventually(lambda: _anon_bytes(daemon, sandbox, 48 * MIB))
        assert anon < 96 * MIB
        assert now["memory"]["swap_bytes"] in (0, None)
        assert now["pressure"] is None or now["pressure"]["memory"]["some_total_seconds"] >= 0
    else:
        # A supervisor does not know what the kernel alone counts.
        assert now["memory"]["anon_bytes"] is None
        assert now["memory"]["swap_bytes"] is None
        assert now["pressure"] is None
    daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/executions/{running['id']}/kill")
    after = metrics(daemon, sandbox)
    assert after["executions"] == {"running": 0, "total": 1}
    assert after["pids"]["current"] == 0
    assert after["memory"]["peak_bytes"] >= 48 * MIB


def test_each_running_execution_is_told_apart(daemon: Daemon, sandbox: Any) -> None:
    hold = "b = b'x' * (int(__import__('sys').argv[1]) << 20); import time; time.sleep(300)"
    sizes = {}
    for size in (16, 48):
        argv = [*python(hold), str(size)]
        sizes[daemon.execute(sandbox["id"], argv, wait=False)["id"]] = size * MIB
    target = f"/v1/sandboxes/{sandbox['id']}/metrics"
    assert daemon.ok("GET", target)["by_execution"] is None

    def each() -> Any:
        return daemon.ok("GET", f"{target}?by_execution=true")["by_execution"]

    deadline = time.monotonic() + 30
    while any(one["memory"]["current_bytes"] < sizes[name] for name, one in each().items()):
        assert time.monotonic() < deadline, each()
    found = each()
    assert found.keys() == sizes.keys()
    for name, size in sizes.items():
        # A scope has the page cache of what it read first, too.
        assert found[name]["memory"]["current_bytes"] < size + 48 * MIB
        assert found[name]["pids"]["current"] == 1
        assert found[name]["cpu"]["seconds"] >= 0
    ended = next(iter(sizes))
    daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/executions/{ended}/kill")
    assert ended not in each()


def test_what_ended_stays_counted(daemon: Daemon, sandbox: Any) -> None:
    burn = "import time\nwhile time.process_time() < 0.6: pass"
    used = [daemon.execute(sandbox["id"], python(burn))["usage"]["cpu_seconds"] for _ in range(2)]
    seconds = metrics(daemon, sandbox)["cpu"]["seconds"]
    assert sum(used) * 0.9 <= seconds <= sum(used) * 1.5 + 0.5


def test_a_limited_one_was_throttled(daemon: Daemon, create: Create) -> None:
    slow = create(limits={"cpus": 0.2})
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    deadline = time.monotonic() + 40
    # A busy host may give it less than its limit for a while.
    while metrics(daemon, slow)["cpu"]["throttled_seconds"] == 0:
        assert time.monotonic() < deadline
        daemon.execute(slow["id"], python(burn))


def test_a_released_one_uses_nothing_any_more(daemon: Daemon) -> None:
    made = daemon.create()
    daemon.execute(made["id"], ["true"])
    daemon.release(made["id"])
    now = metrics(daemon, made)
    assert now["memory"]["current_bytes"] is None
    assert now["executions"] == {"running": 0, "total": 1}
