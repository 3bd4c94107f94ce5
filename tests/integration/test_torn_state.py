# SPDX-License-Identifier: Apache-2.0
"""Daemons that were killed at a bad moment, and hosts that went down: the next daemon starts."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.contract.probes import eventually, path_of, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

CLAIMS = Path("/run/sandboxd-uids")
daemon = daemon_fixture(scope="function", SANDBOX_CGROUP_MODE="off")


def _records(daemon: Daemon, execution: Any) -> Path:
    sandbox = daemon.state / "sandboxes" / str(execution["sandbox_id"])
    return sandbox / "executions" / str(execution["id"])


def _shim(daemon: Daemon, execution: Any) -> int:
    return int(json.loads((_records(daemon, execution) / "start.json").read_text())["pid"])


@pytest.mark.parametrize(("name", "content"), [("start.json", b""), ("record.json", b"\0" * 100)])
def test_a_record_that_never_reached_the_disk_is_a_lost_end(
    daemon: Daemon, name: str, content: bytes
) -> None:
    running = start(daemon, daemon.create(), ["sleep", "300"])
    daemon.kill()
    os.kill(_shim(daemon, running), signal.SIGKILL)
    (_records(daemon, running) / name).write_bytes(content)
    daemon.start()
    assert daemon.wait(running)["status"] == "LOST"
    assert list((daemon.runtime / "executions").iterdir()) == []


def test_what_a_killed_probe_left_is_in_nobodys_way(daemon: Daemon) -> None:
    daemon.stop()
    (daemon.runtime / "executions" / "probe").mkdir()
    daemon.start()


@pytest.mark.usefixtures("requires_root")
def test_half_made_sandboxes_go_and_unreadable_ones_stay(daemon: Daemon) -> None:
    owner = (daemon.state / "instance").read_text().strip()
    kept = daemon.create()
    daemon.kill()
    half = daemon.state / "sandboxes" / "aaaaaaaaaaaa"
    (half / "home" / "below").mkdir(parents=True)
    unreadable = daemon.state / "sandboxes" / "bbbbbbbbbbbb"
    unreadable.mkdir()
    (unreadable / "sandbox.json").write_text("not JSON")
    claim = CLAIMS / "1900000000"
    claim.write_text(f"{owner} aaaaaaaaaaaa\n")
    daemon.start()
    assert not half.exists()
    assert not claim.exists()
    assert (unreadable / "sandbox.json.unreadable").exists()
    assert daemon.execute(kept["id"], ["true"])["exit_code"] == 0


@pytest.mark.parametrize("name", ["execution.json", "start.json"])
def test_an_execution_that_no_record_tells_of_is_ended(daemon: Daemon, name: str) -> None:
    """Nobody could follow it, wait for it or end it."""
    sandbox = daemon.create()
    running = start(daemon, sandbox, ["sleep", "300"])
    shim = os.pidfd_open(_shim(daemon, running))
    half = _records(daemon, {**running, "id": "aaaaaaaaaaaa"})
    daemon.kill()
    # As of one whose removal was cut short.
    half.mkdir()
    (half / "stdout").write_text("left")
    (_records(daemon, running) / "execution.json").write_text("not JSON")
    if name == "start.json":
        (_records(daemon, running) / name).write_text("not JSON either")
    daemon.start()
    assert daemon.request("GET", path_of(running)).code == "EXECUTION_NOT_FOUND"
    assert (_records(daemon, running) / "execution.json.unreadable").exists()
    assert not half.exists()
    # Found by its start record at once, or as a process of an idle sandbox's.
    assert select.select([shim], [], [], 10.0)[0]
    os.close(shim)
    assert daemon.execute(sandbox["id"], ["true"])["exit_code"] == 0
    daemon.release(str(sandbox["id"]))
    assert list((daemon.runtime / "executions").iterdir()) == []


def test_a_suspend_that_was_cut_short_is_finished(daemon: Daemon) -> None:
    """Else one execution stays frozen in a sandbox that says it is ready."""
    sandbox = daemon.create()
    hung = start(daemon, sandbox, ["sleep", "60"])
    frozen = start(daemon, sandbox, ["sleep", "60"])
    shim = _shim(daemon, hung)
    os.kill(shim, signal.SIGSTOP)
    target = f"/v1/sandboxes/{sandbox['id']}"

    def suspend() -> None:
        with suppress(HTTPException, ConnectionError):
            daemon.request("POST", f"{target}/suspend")

    asked = threading.Thread(target=suspend)
    asked.start()
    try:
        eventually(lambda: daemon.ok("GET", target)["state"] == "suspended")
        eventually(lambda: _is_stopped(daemon, frozen))
        daemon.kill()
    finally:
        os.kill(shim, signal.SIGCONT)
        asked.join()
    daemon.start()
    assert daemon.ok("GET", target)["state"] == "suspended"
    eventually(lambda: _is_stopped(daemon, hung))
    daemon.ok("POST", f"{target}/resume")
    assert not _is_stopped(daemon, frozen)


def _is_stopped(daemon: Daemon, execution: Any) -> bool:
    shim = _shim(daemon, execution)
    children = Path(f"/proc/{shim}/task/{shim}/children").read_text().split()
    states = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in children
    ]
    return states == ["T"]
