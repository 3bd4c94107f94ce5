# SPDX-License-Identifier: Apache-2.0
"""What shims are told, and a record that does not say what it must is no record."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.core.model import Bind, Isolation, Ownership
from sandboxd.engine.ports.launch import LaunchRequest
from sandboxd.isolation import seccomp
from sandboxd.launch.reports import read_facts, specification
from sandboxd.osutil.privileges import Privileges
from sandboxd.protocol.records import RECORD_FILE
from tests.conftest import unmet
from tests.unit.values import a_sandbox, an_execution


@pytest.mark.parametrize("text", ["{}", '{"reason": "exited"}', '{"streams": 3}'])
def test_an_incomplete_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD_FILE).write_text(text)
    assert read_facts(str(tmp_path)) is None


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
