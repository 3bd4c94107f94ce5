# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys over the daemon's own end, orderly or not."""

from __future__ import annotations

import pytest

from tests.contract.probes import send_and_leave
from tests.harness import Daemon, running_daemon

RUN = {"command": "echo x >> runs; sleep 2; wc -l < runs"}


def is_running(daemon: Daemon) -> bool:
    found = daemon.ok("GET", "/v1/executions")["executions"]
    return any(one["status"] == "RUNNING" for one in found)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_run_is_run_once_whatever_becomes_of_the_daemon(how: str) -> None:
    with running_daemon() as daemon:
        send_and_leave(daemon, "/v1/run", RUN, "k", lambda: is_running(daemon))
        getattr(daemon, how)()
        daemon.start()
        again = daemon.request("POST", "/v1/run", RUN, Idempotency_Key="k")
        assert (again.status, again.json["stdout"]) == (200, "1\n")
        assert len(daemon.ok("GET", "/v1/executions")["executions"]) == 1
        # The answer of the second daemon is kept for the third.
        daemon.stop()
        daemon.start()
        assert daemon.request("POST", "/v1/run", RUN, Idempotency_Key="k").body == again.body
        other = daemon.request("POST", "/v1/run", {"argv": ["true"]}, Idempotency_Key="k")
        assert other.code == "IDEMPOTENCY_KEY_REUSED"


def test_what_was_created_before_the_end_is_found() -> None:
    with running_daemon() as daemon:
        made = daemon.request("POST", "/v1/sandboxes", {}, Idempotency_Key="k")
        daemon.kill()
        daemon.start()
        assert daemon.request("POST", "/v1/sandboxes", {}, Idempotency_Key="k").body == made.body
        assert len(daemon.ok("GET", "/v1/sandboxes")["sandboxes"]) == 1
