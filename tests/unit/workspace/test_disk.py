# SPDX-License-Identifier: Apache-2.0
"""What is to hold disk limits is what does, or there is no start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from sandboxd.core.model import EnforcedBy
from sandboxd.core.turns import Turn
from sandboxd.errors import ConfigError, HostDiskFull
from sandboxd.osutil.privileges import Privileges
from sandboxd.workspace.disk import Disk, DiskMeans
from sandboxd.workspace.quota import UserQuota
from sandboxd.workspace.scan import Counted


def disk(monkeypatch: pytest.MonkeyPatch, path: Path, means: str, *, has_quota: bool) -> Disk:
    """The disk of a root daemon on a file system with or without user quota."""
    obstacle = None if has_quota else "no quota here"
    monkeypatch.setattr(UserQuota, "obstacle", lambda self: obstacle)
    return Disk(str(path), Privileges(0), None, DiskMeans(means))


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
    made = Disk(str(tmp_path), Privileges(1000), None, DiskMeans.IMAGE)
    with pytest.raises(ConfigError, match="no uids of their own"):
        made.open()
    made.close()


def many(top: Path, count: int) -> str:
    top.mkdir()
    for number in range(count):
        (top / str(number)).touch()
    return str(top)


async def test_a_small_count_does_not_wait_for_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxd.workspace.disk._SLICE_SECONDS", 0.0)
    monkeypatch.setattr("sandboxd.workspace.disk._REST", 0.0)
    made = Disk(str(tmp_path), Privileges(os.getuid()), None, DiskMeans.COUNT)
    made.open()
    large, small = many(tmp_path / "large", 2000), many(tmp_path / "small", 3)
    slow = asyncio.create_task(made.use([large], os.getuid(), 1 << 30, Turn(1, "a")))
    await asyncio.sleep(0)
    made._is_root = False
    found = await made.use([small], os.getuid(), 1 << 30, Turn(2, "b"))
    assert not slow.done()
    assert found.used_bytes >= 4 * 4096
    assert found.took_seconds > 0
    assert (await slow).used_bytes >= 2001 * 4096
    # More names than a sandbox with that limit could have.
    found = await made.use([large], os.getuid(), 4096, Turn(1, "a"))
    assert found.obstacle is None
    monkeypatch.setattr("sandboxd.workspace.disk._SPARE_NAMES", 0)
    found = await made.use([large], os.getuid(), 4096, Turn(1, "a"))
    assert found.obstacle == "more names than so many bytes can have"
    assert found.used_bytes >= 2 * 4096
    made.close()
    with pytest.raises(InterruptedError):
        await made.use([small], os.getuid(), 1 << 30, Turn(2, "b"))


async def test_so_many_counts_are_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may keep some MiB until it ends, and of one owner there may be any number."""
    monkeypatch.setattr("sandboxd.workspace.disk._SLICE_SECONDS", 0.0)
    monkeypatch.setattr("sandboxd.workspace.disk._REST", 0.0)
    made = Disk(str(tmp_path), Privileges(os.getuid()), None, DiskMeans.COUNT)
    made.open()
    made._is_root = False
    under_way = most = 0

    def count(_roots: object, _uid: object, _most: object) -> Generator[None, None, Counted]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(10):
            yield
        under_way -= 1
        return Counted(0)

    monkeypatch.setattr("sandboxd.workspace.scan.count", count)
    turns = [Turn(owner, str(part)) for part in range(20) for owner in (1, 2)]
    await asyncio.gather(*(made.use([], 1, 1 << 30, turn) for turn in turns))
    assert 4 < most <= 8
    assert under_way == 0
    made.close()


async def test_all_counting_rests_after_each_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Disk(str(tmp_path), Privileges(os.getuid()), None, DiskMeans.COUNT)
    made.open()
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for owner in range(3):
        await made.use([str(tmp_path)], os.getuid(), 1 << 30, Turn(owner, "a"))
    assert slept[0] <= 0
    assert all(seconds > 0 for seconds in slept[1:])
    made.close()


async def test_inodes_are_growth_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Disk(str(tmp_path), Privileges(os.getuid()), None, DiskMeans.COUNT)
    found = os.statvfs(tmp_path)
    fields = list(found)
    monkeypatch.setattr("os.statvfs", lambda path: os.statvfs_result(fields))
    assert await made.growth_bytes() == 0
    # f_ffree; f_bfree says nothing of empty files.
    fields[6] -= 1000
    assert await made.growth_bytes() == 1000 * 4096
    made.close()


def test_no_new_sandbox_where_inodes_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Disk(str(tmp_path), Privileges(os.getuid()), 0, DiskMeans.COUNT)
    fields = list(os.statvfs(tmp_path))
    monkeypatch.setattr("os.statvfs", lambda path: os.statvfs_result(fields))
    fields[5], fields[7] = 1_000_000, 100_000
    made.check_floor()
    fields[7] = 1000
    with pytest.raises(HostDiskFull, match="1000 of the disk's 1000000 inodes are free"):
        made.check_floor()
    # What there is goes on: this is about the bytes left for its output.
    assert made.room().free_bytes == fields[4] * fields[1]
    # btrfs has no number of inodes.
    fields[5] = fields[7] = 0
    made.check_floor()
    made.close()
