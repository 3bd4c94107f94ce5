# SPDX-License-Identifier: Apache-2.0
"""A drained host takes no new work, lets what runs end, and stays drained over a restart."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.contract.caller import FIRST_UID, caller
from tests.contract.probes import executions, path_of, printed, refused, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.sandboxctl import ctl, started

WAIT = "echo up; until [ -e go ]; do sleep 0.05; done; exit 4"
daemon = daemon_fixture(
    scope="function", SANDBOX_CGROUP_MODE="off", SANDBOX_MEMORY_LIMIT_BYTES="64M"
)


def test_a_drained_host_refuses_new_work_and_finishes_the_old(daemon: Daemon) -> None:
    made = daemon.create()
    running = start(daemon, made, WAIT)
    printed(daemon, running, b"up")
    home = Path(daemon.state, "sandboxes", made["id"], "home")
    drained = daemon.ok("POST", "/v1/host/drain")
    assert (drained["draining"], drained["executions_running"]) == (True, 1)
    for _ in range(2):
        refused(daemon.request("GET", "/readyz"), 503, "DRAINING")
        assert daemon.ok("GET", "/healthz")["ready"] is False
        for target, body in (
            ("/v1/sandboxes", {}),
            ("/v1/run", {"argv": ["true"]}),
            (executions(made), {"argv": ["true"]}),
        ):
            error = refused(daemon.request("POST", target, body), 503, "DRAINING")
            assert error["retryable"]
        assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
        # The next daemon is not to forget it.
        daemon.kill()
        daemon.start()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(daemon, "drain", "--wait", text=True, **pipes) as waiting:
        assert waiting.stderr is not None
        assert "what runs: 1" in waiting.stderr.readline()
        (home / "go").touch()
        assert waiting.wait(60) == 0
    assert daemon.wait(running)["exit_code"] == 4
    daemon.ok("POST", "/v1/host/undrain")
    assert daemon.ok("GET", "/readyz") == {"ready": True}
    assert daemon.execute(made["id"], ["echo", "again"])["stdout"] == "again\n"


def test_a_bound_without_a_wait_drains_nothing(daemon: Daemon) -> None:
    refused = ctl(daemon, "drain", "--timeout", "1s", code=125)
    assert "--timeout needs --wait" in refused.stderr
    assert daemon.ok("GET", "/v1/host")["draining"] is False


def test_waiting_for_a_drained_host_has_an_end(daemon: Daemon) -> None:
    made = daemon.create()
    start(daemon, made, ["sleep", "300"])
    began = time.monotonic()
    ended = ctl(daemon, "drain", "--wait", "--timeout", "1s", code=75)
    assert time.monotonic() - began >= 1
    assert "still run: 1;" in ended.stderr
    assert daemon.ok("GET", "/v1/host")["draining"] is True
    undrained = ctl(daemon, "undrain")
    assert (undrained.stdout, undrained.stderr) == ("", "")
    assert daemon.ok("GET", "/v1/host")["draining"] is False


@pytest.mark.usefixtures("requires_root")
def test_only_admins_may_drain(daemon: Daemon) -> None:
    daemon.open_to_all()
    with caller(daemon, FIRST_UID) as somebody:
        for verb in ("drain", "undrain"):
            refused(somebody.request("POST", f"/v1/host/{verb}"), 403, "ACCESS_DENIED")
    assert daemon.ok("GET", "/v1/host")["draining"] is False
