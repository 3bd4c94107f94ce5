# SPDX-License-Identifier: Apache-2.0
"""sandboxctl report with a real daemon."""

from __future__ import annotations

import json

import pytest

from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.sandboxctl import ctl

pytestmark = pytest.mark.timeout(180)
EVIL = "echo '<script>alert(1)</script>'; exit 3"
daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off", SANDBOX_MEMORY_LIMIT_BYTES="64M")


def test_a_report_of_nothing_and_then_of_something(daemon: Daemon) -> None:
    for argv in ((), ("--html",)):
        assert ctl(daemon, "report", *argv).stderr == ""
    made = daemon.create(name="reported")
    daemon.execute(made["id"], EVIL)
    daemon.execute(made["id"], "sleep 300", timeout_seconds=0.1)
    assert daemon.request("GET", "/v1/sandboxes/nosuch").status == 404
    found = json.loads(ctl(daemon, "report", "-o", "json").stdout)
    assert found["ended"] == {"EXITED": 1, "TIMED_OUT": 1}
    assert found["refused"]["SANDBOX_NOT_FOUND"] == 1
    assert [one["name"] for one in found["sandboxes"]] == ["reported"]
    text = ctl(daemon, "report", "--since", "2h").stdout
    for word in ("executions ended   2", "TIMED_OUT", "SANDBOX_NOT_FOUND", "reported"):
        assert word in text
    html = ctl(daemon, "report", "--html").stdout
    assert html.lstrip().startswith("<!DOCTYPE html>")
    assert html.rstrip().endswith("</html>")
    assert "&lt;script&gt;alert(1)" in html
    assert "<script" not in html
    earlier = ctl(daemon, "report", "--since", "3h", "--until", "2h").stdout
    assert "executions ended   0" in earlier


def test_what_makes_no_period_is_refused(daemon: Daemon) -> None:
    for argv in (("--since", "1h", "--until", "2h"), ("--since", "soon"), ("--html", "-o", "json")):
        ctl(daemon, "report", *argv, code=125)
