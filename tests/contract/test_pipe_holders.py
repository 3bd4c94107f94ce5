# SPDX-License-Identifier: Apache-2.0
"""A pipe's end is seen when the last one inside lets go of it: neither systemd nor a helper of ours
nor another execution holds its other end."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.contract.probes import find, path_of, printed, python, start, uid_inside
from tests.harness import Daemon

pytestmark = pytest.mark.usefixtures("requires_root")
# Closes its output, says so on the other stream, and waits for the end of its input.
READER = "import os; os.write(1, b'here'); os.close(1); os.write(2, b'shut'); os.read(0, 1)"
_ENDS = re.compile(r"pipe:\[\d+\]")


def pipes_of(pid: int) -> set[str]:
    """The pipes that a process has open, by their inodes."""
    found = set()
    # A container's first process may be out of even root's sight.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return {name for name in found if _ENDS.fullmatch(name)}


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"^PPid:\s+(\d+)$", status, re.MULTILINE)[0])


def everybody() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def test_only_a_command_and_its_shim_hold_its_pipes(
    daemon: Daemon, sandbox: Any, scheme: str
) -> None:
    if scheme == "systemd":
        assert os.readlink("/proc/1/fd/0")
    uid = uid_inside(daemon, sandbox)
    pids = []
    for seconds in (30001, 30002, 30003):
        start(daemon, sandbox, ["sleep", str(seconds)], stdin_open=True)
        pids += find(f"sleep {seconds}", uid)
    assert len(pids) == 3
    for pid in pids:
        own = {os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)}
        assert all(map(_ENDS.fullmatch, own)), own
        holders = {other for other in everybody() if pipes_of(other) & own}
        assert holders == {pid, parent_of(pid)}


def test_each_end_of_input_is_seen_while_others_stay_open(daemon: Daemon, sandbox: Any) -> None:
    running = [start(daemon, sandbox, python(READER), stdin_open=True) for _ in range(3)]
    for one in running:
        printed(daemon, one, b"here")
    for number, one in enumerate(running):
        assert daemon.request("POST", f"{path_of(one)}/stdin/close").status == 204
        assert daemon.wait(one)["exit_code"] == 0
        for other in running[number + 1 :]:
            assert daemon.ok("GET", path_of(other))["status"] == "RUNNING"
