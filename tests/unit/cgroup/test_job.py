# SPDX-License-Identifier: Apache-2.0
"""The sub-cgroups of a scope: what is written where, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.cgroup import job


def test_shim_and_job_are_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, str]] = []

    def write(directory: str, name: str, text: str) -> None:
        assert Path(directory).is_dir()
        written.append((f"{Path(directory).relative_to(tmp_path)}/{name}", text))

    monkeypatch.setattr(job, "_write", write)
    assert job.make_beside(str(tmp_path)) == str(tmp_path / "job")
    # A controller is handed on only once the scope has no process of its own.
    assert written == [
        ("shim/cgroup.procs", "0"),
        ("./cgroup.subtree_control", "+memory"),
        ("job/memory.oom.group", "1"),
    ]
