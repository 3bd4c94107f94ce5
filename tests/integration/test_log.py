# SPDX-License-Identifier: Apache-2.0
"""What the daemon writes by itself: one line for an execution, none for a request."""

from __future__ import annotations

from tests.fixtures import daemon_fixture
from tests.harness import Daemon

daemon = daemon_fixture(scope="function", SANDBOX_CGROUP_MODE="off", SANDBOX_LOG_ARGUMENTS="true")


def test_requests_push_out_nobodys_lines(daemon: Daemon) -> None:
    made = daemon.create()
    before = len(daemon.log.read_text().splitlines())
    for _ in range(50):
        assert daemon.request("GET", "/v1/sandboxes/nosuch").status == 404
        assert daemon.request("POST", "/v1/sandboxes", {"nosuch": 1}).status == 400
        assert daemon.request("PATCH", "/v1/nosuch", {}).status == 404
        daemon.ok("GET", f"/v1/sandboxes/{made['id']}")
    assert len(daemon.log.read_text().splitlines()) == before


def test_the_end_of_the_daemon_is_one_line(daemon: Daemon) -> None:
    daemon.stop()
    *before, last = daemon.log.read_text().splitlines()
    assert last.endswith("Stopping; what runs goes on")
    assert not any("Stopping" in line for line in before)


def test_an_execution_is_one_line_whatever_its_arguments(daemon: Daemon) -> None:
    made = daemon.create()
    before = len(daemon.log.read_text().splitlines())
    forged = "\nINFO sandboxd.engine.lifecycle: Released sandbox x\r\x1b[2J"
    for argv in (["true", forged], ["false"], ["true"]):
        daemon.execute(made["id"], argv)
    lines = daemon.log.read_text().splitlines()[before:]
    assert [line.split()[2] for line in lines] == ["Execution"] * 3
    assert all(f"of sandbox {made['id']} ended as EXITED" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    assert r"\nINFO sandboxd.engine.lifecycle: Released" in lines[0]
