# SPDX-License-Identifier: Apache-2.0
"""The files through which the daemon tells a supervisor what it wants."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandboxd.protocol.codec import Malformed
from sandboxd.protocol.supervision import Caps, Entry, State, StateDirectory

STATE = State(
    "abcdefghijkl",
    1879048200,
    Caps(memory_bytes=1 << 28, cpus=1.5, pids=64, io_read_bytes_per_second=1),
    suspended=True,
    executions=(Entry("mnopqrstuvwx", "/run/x", 77, 123456, Caps(cpu_seconds=2.5)),),
)


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(str(tmp_path))
    made.make()
    return made


def test_what_is_written_is_read(directory: StateDirectory) -> None:
    directory.write(STATE)
    assert directory.read(STATE.sandbox) == STATE
    assert set(directory.times()) == {STATE.sandbox}
    directory.write(replace(STATE, uid=None, executions=()))
    read = directory.read(STATE.sandbox)
    assert read is not None
    assert (read.uid, read.executions) == (None, ())


def test_it_is_roots_alone(directory: StateDirectory) -> None:
    directory.write(STATE)
    assert Path(directory.path).stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in Path(directory.path).iterdir())


def test_one_that_is_gone_is_none(directory: StateDirectory) -> None:
    assert directory.read("abcdefghijkl") is None
    directory.remove("abcdefghijkl")


def test_a_removed_one_was_never_throttled(directory: StateDirectory) -> None:
    directory.write(STATE)
    assert not directory.was_throttled(STATE.sandbox)
    directory.mark_throttled(STATE.sandbox)
    assert directory.was_throttled(STATE.sandbox)
    assert set(directory.times()) == {STATE.sandbox}
    directory.remove(STATE.sandbox)
    assert not directory.was_throttled(STATE.sandbox)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"{}", b'{"protocol":2}'])
def test_an_unreadable_one_is_said_to_be(directory: StateDirectory, text: bytes) -> None:
    Path(directory.path, "abcdefghijkl.json").write_bytes(text)
    with pytest.raises(Malformed, match="cannot read"):
        directory.read("abcdefghijkl")


@pytest.mark.parametrize("change", [{"uid": 0}, {"protocol": 2}])
def test_root_is_never_supervised(directory: StateDirectory, change: dict[str, Any]) -> None:
    directory.write(replace(STATE, **change))
    with pytest.raises(Malformed, match=r"root|protocol"):
        directory.read(STATE.sandbox)


def test_a_state_of_the_release_before(directory: StateDirectory) -> None:
    """And its supervisor, which may live a while longer than its daemon, reads ours."""
    written = {
        "protocol": 1, "sandbox": "abcdefghijkl", "uid": 1879048200, "suspended": True,
        "limits": {"memory_bytes": 1 << 28, "cpus": 1.5, "pids": 64, "io_read_bytes_per_second": 1,
                   "io_write_bytes_per_second": None, "cpu_seconds": None, "data_bytes": None},
        "executions": [
            {"id": "mnopqrstuvwx", "evidence_directory": "/run/x", "shim_pid": 77,
             "shim_start_time": 123456,
             "limits": {"memory_bytes": None, "cpus": None, "pids": None,
                        "io_read_bytes_per_second": None, "io_write_bytes_per_second": None,
                        "cpu_seconds": 2.5, "data_bytes": None}},
        ],
    }  # fmt: skip
    path = Path(directory.path, "abcdefghijkl.json")
    path.write_text(json.dumps(written))
    assert directory.read("abcdefghijkl") == STATE
    directory.write(STATE)
    assert json.loads(path.read_text()) == written
