# SPDX-License-Identifier: Apache-2.0
"""The rendered units where no cgroup holds limits: the helpers do, behind their own walls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.probes import path_of, printed, python, start
from tests.contract.test_memory import BOMBS, GROW, is_oom
from tests.system.installed import SERVICES, installed, run


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("requires_root", "requires_systemd")
def test_helpers_are_restarted_under_work_and_can_all_they_must(tmp_path: Path) -> None:
    with installed(tmp_path, SANDBOX_CGROUP_MODE="off") as service:
        told = service.ok("GET", "/v1/host")
        assert [lack for lack in told["missing"] if "CAP_" in lack or "root" in lack] == []
        made = service.create(limits={"memory_bytes": "128M"})
        running = start(service, made, "echo up; exec sleep 300")
        printed(service, running, b"up")
        for unit in SERVICES[1:]:
            pid = service.pid(unit)
            assert pid
            run("systemctl", "restart", unit)
            service.await_another(unit, pid)
        assert service.ok("GET", path_of(running))["status"] == "RUNNING"
        # Ends whatever the sandbox runs.
        ran = service.execute(made["id"], python(GROW + BOMBS["memfd"]))
        assert is_oom(ran, "sandbox")
        service.release(made["id"])
