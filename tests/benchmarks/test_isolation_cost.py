# SPDX-License-Identifier: Apache-2.0
"""What a level costs: executions and sandboxes at basic and at standard, interleaved in one run.

`pytest tests/benchmarks -s` prints one JSON object for each case.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.fixtures import daemon_fixture
from tests.harness import Daemon

pytestmark = [pytest.mark.usefixtures("requires_root"), pytest.mark.timeout(300)]

LEVELS = ("basic", "standard")
EXECUTIONS = 200
SANDBOXES = 50
# What standard may cost, in terms of basic on the host's network.
EXECUTION_BOUND = 2.5
SANDBOX_BOUND = 8.0
daemon = daemon_fixture(SANDBOX_MEMORY_LIMIT_BYTES="64M")


def milliseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def report(case: str, taken: dict[str, list[float]]) -> float:
    """Print medians and 99th percentiles; the ratio of the medians."""
    shown = {
        name: {
            "median_ms": round(statistics.median(values), 2),
            "p99_ms": round(statistics.quantiles(values, n=100)[98], 2),
        }
        for name, values in taken.items()
    }
    ratio = statistics.median(taken["standard"]) / statistics.median(taken["basic"])
    print(json.dumps({"case": case, **shown, "ratio": round(ratio, 2)}))
    return ratio


def test_an_execution_at_standard_beside_one_at_basic(daemon: Daemon) -> None:
    made = {level: daemon.create(isolation=level)["id"] for level in LEVELS}
    taken: dict[str, list[float]] = {level: [] for level in LEVELS}
    for _ in range(EXECUTIONS):
        for level, sandbox in made.items():
            taken[level].append(milliseconds(partial(daemon.execute, sandbox, ["true"])))
    assert report("execution", taken) <= EXECUTION_BOUND


def test_a_sandbox_at_standard_beside_one_at_basic(daemon: Daemon) -> None:
    """The whole life without an execution; at basic with a network of its own and without."""
    bodies = {
        "basic": {"isolation": "basic", "network": "host"},
        "basic_loopback": {"isolation": "basic"},
        "standard": {"isolation": "standard"},
    }
    taken: dict[str, list[float]] = {name: [] for name in bodies}
    for _ in range(SANDBOXES):
        for name, body in bodies.items():
            taken[name].append(milliseconds(partial(live_and_go, daemon, body)))
    assert report("sandbox", taken) <= SANDBOX_BOUND


def live_and_go(daemon: Daemon, body: dict[str, str]) -> None:
    daemon.release(daemon.create(**body)["id"])
