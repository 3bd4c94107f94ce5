# SPDX-License-Identifier: Apache-2.0
"""The group kill of the OOM killer is kept, also over a scope that ends meanwhile."""

from __future__ import annotations

from pathlib import Path

from sandboxd.cgroup import job


def test_what_systemd_reset_is_set_again(tmp_path: Path) -> None:
    attribute = tmp_path / "memory.oom.group"
    for text in ("0\n", "1\n"):
        attribute.write_text(text)
        job.keep_oom_group(str(tmp_path))
        assert attribute.read_text().strip() == "1"


def test_a_scope_that_ended_is_no_error(tmp_path: Path) -> None:
    job.keep_oom_group(str(tmp_path))
    job.keep_oom_group(str(tmp_path / "gone"))
    assert not list(tmp_path.iterdir())
