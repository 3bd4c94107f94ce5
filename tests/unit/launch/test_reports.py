# SPDX-License-Identifier: Apache-2.0
"""What shims are told, and a record that does not say what it must is no record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sandboxd.core.model import Bind, Isolation, LimitOwner, OutputSummary, Ownership
from sandboxd.core.outcome import SupervisorVerdict, usage
from sandboxd.engine.ports.launch import LaunchRequest
from sandboxd.isolation import seccomp
from sandboxd.launch.reports import open_shim, read_facts, read_start, specification
from sandboxd.osutil.privileges import Privileges
from sandboxd.osutil.processes import boot_id
from sandboxd.protocol.records import RECORD_FILE, START_FILE
from sandboxd.supervisor.process import Process
from tests.conftest import unmet
from tests.unit.values import a_sandbox, an_execution


@pytest.mark.parametrize("text", ["{}", '{"reason": "exited"}', '{"streams": 3}'])
def test_an_incomplete_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD_FILE).write_text(text)
    assert read_facts(str(tmp_path)) is None


OF_THE_RELEASE_BEFORE = {
    "protocol": 5, "reason": "exited", "kill_code": None, "wait_status": 9,
    "started_at": 1700000000.5, "wall_seconds": 2.0, "finished_at": 1700000002.5,
    "kill_complete": True, "leftovers_killed": 1, "pids_at_end": 2, "cpu_user_seconds": 1.5,
    "cpu_system_seconds": 0.5, "io_read": 4096, "io_written": 8192, "largest_process": 1048576,
    "streams": [{"size": 3, "truncated": False, "error": None},
                {"size": 0, "truncated": True, "error": "No space left on device"}],
    "baseline": {}, "counters": None,
}  # fmt: skip
_BASELINE = {
    "sandbox_oom": 0, "aggregate_oom": 0, "sandbox_pids_max": None, "aggregate_pids_max": None,
}  # fmt: skip


def test_a_record_of_a_shim_of_the_release_before(tmp_path: Path) -> None:
    supervised = {
        "verdict": {"reason": "oom", "owner": "sandbox", "limit_bytes": 5, "used_bytes": 6},
        "supervised": {"memory_peak": 6, "pids_peak": 3, "cpu_seconds": 2.5, "io_read": 1,
                       "io_written": 2, "cpu_throttled_seconds": 0.0, "oom_kills": 2},
    }  # fmt: skip
    (tmp_path / RECORD_FILE).write_text(json.dumps({**OF_THE_RELEASE_BEFORE, **supervised}))
    facts = read_facts(str(tmp_path))
    assert facts is not None
    assert facts.verdict == SupervisorVerdict("oom", LimitOwner.SANDBOX)
    assert facts.streams == (OutputSummary(3, False), OutputSummary(0, True))
    found = usage(facts)
    assert (found.memory_peak_bytes, found.io_read_bytes, found.io_written_bytes) == (
        1048576, 4096, 8192
    )  # fmt: skip
    assert (found.pids_peak, found.oom_kills) == (3, 2)


def test_a_record_of_a_scope_of_the_release_before(tmp_path: Path) -> None:
    counters = {
        **_BASELINE, "oom": 1, "oom_kill": 1, "memory_peak": 77, "pids_max": 0, "pids_peak": 3,
        "pids_limit": 10, "cpu_usec": 2000000, "cpu_user_usec": 1, "cpu_system_usec": 2,
        "cpu_throttled_usec": 3, "io_read": 11, "io_written": 12,
    }  # fmt: skip
    record = {**OF_THE_RELEASE_BEFORE, "baseline": _BASELINE, "counters": counters}
    (tmp_path / RECORD_FILE).write_text(json.dumps(record))
    facts = read_facts(str(tmp_path))
    assert facts is not None
    found = usage(facts)
    assert (found.memory_peak_bytes, found.io_read_bytes, found.io_written_bytes) == (77, 11, 12)
    assert found.cpu_seconds == 2.0


def test_a_start_record_of_the_release_before(tmp_path: Path) -> None:
    """Of a shim that lives on, and is adopted."""
    status = Process(os.getpid())
    status.look()
    start = {
        "protocol": 5, "pid": os.getpid(), "start_time": status.start_time, "boot_id": boot_id(),
        "pid_namespace": True, "missing": ["priority: x"],
    }  # fmt: skip
    status.close()
    (tmp_path / START_FILE).write_text(json.dumps(start))
    pidfd = open_shim(read_start(str(tmp_path)))
    assert pidfd is not None
    os.close(pidfd)
    (tmp_path / START_FILE).write_text(json.dumps({**start, "start_time": 1}))
    assert open_shim(read_start(str(tmp_path))) is None


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"{}", b'{"pid": "1"}'])
def test_a_damaged_start_record_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / START_FILE).write_bytes(data)
    assert read_start(str(tmp_path)) is None


def test_no_record_is_none(tmp_path: Path) -> None:
    assert read_facts(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("binds", "has_no_set_id"),
    [
        ((), False),
        ((Bind("/a", "/a", writable=True, ownership=Ownership.HOST),), True),
        ((Bind("/a", "/a", ownership=Ownership.HOST),), False),
        ((Bind("/a", "/a", ownership=Ownership.MAPPED),), False),
        ((Bind("/a", "/a"), Bind("/b", "/b", writable=True, ownership=Ownership.MAPPED)), True),
        # Nobody knows what became of it.
        ((Bind("/a", "/a", writable=True, ownership=None),), True),
    ],
)
def test_who_writes_files_of_the_host_makes_none_with_set_id_bits(
    binds: tuple[Bind, ...], has_no_set_id: bool
) -> None:
    sandbox = a_sandbox()
    sandbox.binds, sandbox.isolation = binds, Isolation.STRICT
    request = LaunchRequest(
        sandbox=sandbox, execution=an_execution(), cgroup=None, is_supervised=False, env={},
        cwd="/", rlimits={}, record_directory="/r", tmp_directory="/t", identity_files={},
        spool_floor_bytes=0, private_mounts=True, terminals=1,
    )  # fmt: skip
    wanted = seccomp.Filter.STRICT_NO_SET_ID if has_no_set_id else seccomp.Filter.STRICT
    if seccomp.missing() is not None:
        unmet(f"{seccomp.missing()}")
    assert specification(request, "/run/x", "/e", Privileges(0)).command.filter == wanted
