# SPDX-License-Identifier: Apache-2.0
"""Two daemons beside each other under one systemd: each adopts and clears only its own."""

from __future__ import annotations

import pytest

from tests.contract.probes import eventually, path_of, printed, start, uid_inside
from tests.harness import running_daemon
from tests.integration.process import run_daemon
from tests.system import host

SETTINGS = {"SANDBOX_CGROUP_MODE": "required", "SANDBOX_MEMORY_LIMIT_BYTES": "64M"}


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("requires_systemd")
def test_each_adopts_and_clears_only_its_own() -> None:
    with running_daemon(**SETTINGS) as one, running_daemon(**SETTINGS) as two:
        mine, other = one.create(name="same"), two.create(name="same")
        assert mine["unit"] != other["unit"]
        assert uid_inside(one, mine) != uid_inside(two, other)
        running, others = (
            start(daemon, made, "echo up; exec sleep 300")
            for daemon, made in ((one, mine), (two, other))
        )
        printed(one, running, b"up")
        printed(two, others, b"up")
        two.kill()
        two.start()
        assert two.ok("GET", path_of(others))["status"] == "RUNNING"
        assert two.request("GET", path_of(running)).code == "SANDBOX_NOT_FOUND"
        # Its parent slice with everything in it, its helpers, its claims of uids.
        assert two.stop() == 0
        assert run_daemon(two, "--stop-all", **SETTINGS)[0] == 0
        eventually(lambda: other["unit"] not in host.sandboxd_units(), 30)
        assert host.show(running["unit"], "ActiveState") == {"ActiveState": "active"}
        assert one.ok("GET", path_of(running))["status"] == "RUNNING"
        assert one.execute("same", ["echo", "on"])["stdout"] == "on\n"
        assert one.execute(one.create()["id"], ["echo", "on"])["stdout"] == "on\n"
