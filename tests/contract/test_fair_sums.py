# SPDX-License-Identifier: Apache-2.0
"""Who has little of what callers share gets it, however much others hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from tests.contract.caller import FIRST_UID, caller
from tests.contract.greedy import under_way
from tests.harness import Daemon

pytestmark = pytest.mark.usefixtures("requires_root")
# Far more than anybody gets.
MANY = 2048
LITTLE = 8
LIMITS = {"memory_bytes": "8M"}


@contextmanager
def streams(daemon: Daemon, uid: int) -> Iterator[list[str]]:
    """Requests that follow a caller's own executions."""
    with caller(daemon, uid) as one, ExitStack() as undo:
        heads = []
        for _ in range(2):
            body = {"argv": ["sleep", "600"], "wait": False, "limits": LIMITS}
            ran = one.ok("POST", "/v1/run", body)
            undo.callback(daemon.release, ran["sandbox_id"])
            target = f"/v1/sandboxes/{ran['sandbox_id']}/executions/{ran['id']}"
            heads.append(f"GET {target}/output?follow=true HTTP/1.1")
        yield heads


@contextmanager
def uploads(daemon: Daemon, uid: int) -> Iterator[list[str]]:
    """Requests that write files and never send them."""
    with caller(daemon, uid) as one, ExitStack() as undo:
        heads = []
        for _ in range(4):
            made = one.ok("POST", "/v1/sandboxes", {"limits": LIMITS})
            undo.callback(daemon.release, made["id"])
            target = f"/v1/sandboxes/{made['id']}/files/f"
            heads.append(f"PUT {target} HTTP/1.1|Content-Length: 9|Expect: 100-continue")
        yield heads


@pytest.mark.parametrize(("requests", "greedy"), [(streams, 3), (uploads, 5)])
def test_greedy_callers_leave_something_to_the_next(
    daemon: Daemon,
    requests: Callable[[Daemon, int], AbstractContextManager[list[str]]],
    greedy: int,
) -> None:
    with ExitStack() as held:
        counts = []
        for uid in range(FIRST_UID + 10, FIRST_UID + 10 + greedy):
            heads = held.enter_context(requests(daemon, uid))
            counts.append(held.enter_context(under_way(daemon, uid, heads, MANY)))
        assert counts == sorted(counts, reverse=True)
        assert counts[0] > counts[-1] > LITTLE
        for uid in (FIRST_UID + 9, 0):
            heads = held.enter_context(requests(daemon, uid))
            assert held.enter_context(under_way(daemon, uid, heads, LITTLE)) == LITTLE
