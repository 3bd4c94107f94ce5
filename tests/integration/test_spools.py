# SPDX-License-Identifier: Apache-2.0
"""Output that fills the disk: whoever prints it is ended, and neighbours lose nothing."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest

from tests.contract.caller import FIRST_UID, SECOND_UID, CallerOf, caller
from tests.contract.probes import eventually, path_of, printed
from tests.file_systems import daemon_on
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

pytestmark = pytest.mark.usefixtures("requires_root")
MIB = 1 << 20
DISK_BYTES = 160 * MIB
daemon = daemon_fixture(
    daemon_on,
    scope="function",
    kind="tmpfs",
    size=str(DISK_BYTES),
    is_open_to_all=True,
    SANDBOX_MEMORY_LIMIT_BYTES="64M",
    SANDBOX_DISK_LIMIT_BYTES="10M",
)


def started(who: CallerOf, command: str, **body: Any) -> Any:
    made = who.ok("POST", "/v1/sandboxes", {"limits": {"memory_bytes": "32M"}})
    target = f"/v1/sandboxes/{made['id']}/executions"
    return who.ok("POST", target, {"command": command, "wait": False, **body})


def over(who: CallerOf, execution: Any) -> Any:
    now = who.ok("GET", path_of(execution))
    return now if now["finished_at"] else None


def test_one_that_fills_the_disk_is_ended_and_its_neighbour_loses_nothing(daemon: Daemon) -> None:
    with caller(daemon, FIRST_UID) as greedy, caller(daemon, SECOND_UID) as modest:
        counts = "i=0; while [ ! -e go ]; do i=$((i+1)); echo line $i; sleep 0.01; done; echo end"
        beside = started(modest, counts)
        printed(daemon, beside, b"line 2\n")
        filling = [started(greedy, "exec cat /dev/zero", max_output_bytes="4G") for _ in range(3)]
        for each in filling:
            ended = eventually(partial(over, greedy, each))
            assert (ended["status"], ended["limit_owner"]) == ("OUTPUT_LIMIT", "host")
            assert ended["error_code"] == "SANDBOX_OUTPUT_LIMIT_EXCEEDED"
        # There is room for a sandbox, an execution and what runs.
        found = os.statvfs(daemon.state)
        assert found.f_bavail * found.f_frsize > DISK_BYTES // 20
        again = started(modest, "head -c 2M /dev/zero | tr '\\0' x")
        whole = eventually(partial(over, modest, again))
        assert (whole["status"], whole["stdout_bytes"]) == ("EXITED", 2 * MIB), whole
        target = f"/v1/sandboxes/{beside['sandbox_id']}/executions"
        modest.ok("POST", target, {"command": "touch go"})
        ended = eventually(partial(over, modest, beside))
        lines = ended["stdout"].splitlines()
        assert ended["status"] == "EXITED"
        assert not ended["stdout_truncated"]
        assert lines == [*(f"line {n + 1}" for n in range(len(lines) - 1)), "end"]
