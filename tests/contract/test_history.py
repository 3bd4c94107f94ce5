# SPDX-License-Identifier: Apache-2.0
"""The history against what was done: use, verdicts and refusals, each caller's own."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from tests.contract.caller import FIRST_UID, SECOND_UID, CallerOf
from tests.contract.probes import python, refused
from tests.harness import Daemon

MIB = 1 << 20
BURN = "b = b'x' * (40 << 20)\nimport time\nwhile time.process_time() < 0.5: pass"


def owner(answer: Any, uid: int) -> Any:
    """The sums of one owner; nothing where it did nothing."""
    found = [one for one in answer["owners"] if one["owner_uid"] == uid]
    return found[0] if found else {"ended": {}, "refused": {}, "cpu_seconds": 0.0}


def gained(before: Any, after: Any, name: str) -> dict[str, int]:
    return dict(Counter(after[name]) - Counter(before[name]))


def test_what_ran_and_what_was_refused_is_in_it(daemon: Daemon, sandbox: Any) -> None:
    before = owner(daemon.ok("GET", "/v1/history"), 0)
    daemon.execute(sandbox["id"], python(BURN))
    daemon.execute(sandbox["id"], "sleep 300", timeout_seconds=0.1)
    refused(daemon.request("GET", "/v1/sandboxes/nosuch"), 404, "SANDBOX_NOT_FOUND")
    answer = daemon.ok("GET", "/v1/history")
    after = owner(answer, 0)
    assert gained(before, after, "ended") == {"EXITED": 1, "TIMED_OUT": 1}
    assert gained(before, after, "refused") == {"SANDBOX_NOT_FOUND": 1}
    assert 0.4 < after["cpu_seconds"] - (before["cpu_seconds"] or 0) < 10
    total: Counter[str] = Counter()
    for point in answer["points"]:
        total += Counter(point["ended"])
        assert answer["since"] <= point["at"] < answer["until"]
    assert total == sum((Counter(one["ended"]) for one in answer["owners"]), Counter())
    assert answer["known_since"] < answer["until"]


def test_a_running_execution_is_in_it(daemon: Daemon, sandbox: Any) -> None:
    hold = python("b = b'x' * (40 << 20); print('made', flush=True); import time; time.sleep(300)")
    running = daemon.execute(sandbox["id"], hold, wait=False)
    target = f"/v1/sandboxes/{sandbox['id']}/executions/{running['id']}/output?follow=true"
    with daemon.stream(target) as output:
        assert output.readline() == b"made\n"
    deadline = time.monotonic() + 30
    # A look of the second before is good enough for whoever asks.
    while (answer := daemon.ok("GET", "/v1/history?points=1")) and (
        owner(answer, 0).get("memory_bytes") or 0
    ) < 40 * MIB:
        assert time.monotonic() < deadline, answer
    assert len(answer["points"]) == 1
    assert owner(answer, 0)["executions"] >= 1


def test_callers_see_their_own(daemon: Daemon, first: CallerOf, second: CallerOf) -> None:
    body = {"argv": ["true"], "limits": {"memory_bytes": "64M"}}
    assert first.ok("POST", "/v1/run", body)["status"] == "EXITED"
    refused(second.request("POST", "/v1/run", {}), 400, "INVALID_REQUEST")
    mine = first.ok("GET", "/v1/history")
    assert [one["owner_uid"] for one in mine["owners"]] == [FIRST_UID]
    assert "INVALID_REQUEST" not in mine["owners"][0]["refused"]
    theirs = second.ok("GET", "/v1/history")
    assert [one["owner_uid"] for one in theirs["owners"]] == [SECOND_UID]
    assert theirs["owners"][0]["refused"]["INVALID_REQUEST"] == 1
    assert theirs["owners"][0]["ended"] == {}
    every = {one["owner_uid"] for one in daemon.ok("GET", "/v1/history")["owners"]}
    assert {FIRST_UID, SECOND_UID} <= every


def test_times_are_bounded_and_checked(daemon: Daemon) -> None:
    answer = daemon.ok("GET", "/v1/history?since=2001-01-01T00:00:00Z&points=10")
    assert answer["interval_seconds"] * 10 >= 30 * 86400
    for query in ("since=2001-01-01T00:00:00Z&until=2001-01-01T00:00:00Z", "since=yesterday",
                  "until=9999-12-31T23:59:59Z", "points=0", "points=1441", "nosuch=1"):  # fmt: skip
        refused(daemon.request("GET", f"/v1/history?{query}"), 400, "INVALID_REQUEST")
    future = daemon.ok("GET", "/v1/history?since=2090-01-01T00:00:00Z")
    assert (future["points"], future["owners"]) == ([], [])
