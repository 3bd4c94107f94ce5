# SPDX-License-Identifier: Apache-2.0
"""What is to hold disk limits is what does, or there is no start."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.errors import ConfigError
from sandboxd.model import EnforcedBy
from sandboxd.workspace.disk import Disk, DiskMeans
from sandboxd.workspace.quota import UserQuota


def disk(monkeypatch: pytest.MonkeyPatch, path: Path, means: str, *, has_quota: bool) -> Disk:
    """The disk of a root daemon on a file system with or without user quota."""
    obstacle = None if has_quota else "no quota here"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(UserQuota, "obstacle", lambda self: obstacle)
    return Disk(str(path), None, DiskMeans(means))


@pytest.mark.parametrize(
    ("means", "has_quota", "by"),
    [("auto", True, EnforcedBy.KERNEL), ("auto", False, EnforcedBy.SUPERVISOR),
     ("quota", True, EnforcedBy.KERNEL), ("count", True, EnforcedBy.SUPERVISOR)],
)  # fmt: skip
def test_what_holds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, means: str, has_quota: bool, by: EnforcedBy
) -> None:
    made = disk(monkeypatch, tmp_path, means, has_quota=has_quota)
    made.open()
    assert made.enforcement().by is by
    assert made.holds is (by is EnforcedBy.KERNEL)
    made.close()


def test_no_start_without_the_quota_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = disk(monkeypatch, tmp_path, "quota", has_quota=False)
    with pytest.raises(ConfigError, match="SANDBOX_DISK_MEANS=quota: no quota here"):
        made.open()
    made.close()


def test_no_images_without_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    made = Disk(str(tmp_path), None, DiskMeans.IMAGE)
    with pytest.raises(ConfigError, match="no uids of their own"):
        made.open()
    made.close()
