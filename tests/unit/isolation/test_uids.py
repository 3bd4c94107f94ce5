# SPDX-License-Identifier: Apache-2.0
"""Sandbox uids are nobody else's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandboxd.errors import CapacityExceeded, HostDiskFull
from sandboxd.isolation import uids as module
from sandboxd.isolation.uids import UidRange, kill_processes, process_uids

FIRST = 0x70000000


async def test_two_daemons_share_a_range_and_never_a_uid(tmp_path: Path) -> None:
    claims = str(tmp_path / "claims")
    one = UidRange("one", first=FIRST, count=8, claims=claims)
    other = UidRange("other", first=FIRST, count=8, claims=claims)
    taken = [await owner.take("abcdefghijkl") for owner in (one, other) for _ in range(3)]
    assert len(set(taken)) == 6
    assert all(FIRST <= uid < FIRST + 8 for uid in taken)
    assert (tmp_path / "claims" / str(taken[0])).read_text() == "one abcdefghijkl\n"


async def test_an_exhausted_range_says_so(tmp_path: Path) -> None:
    uids = UidRange("one", first=FIRST, count=1, claims=str(tmp_path))
    uid = await uids.take("abcdefghijkl")
    with pytest.raises(CapacityExceeded, match="free uid"):
        await uids.take("mnopqrstuvwx")
    assert await uids.give_back(uid)
    assert await uids.take("mnopqrstuvwx") == uid


async def test_no_room_for_a_claim_is_told_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ = os.open

    def into_a_full_one(path: str, flags: int, mode: int = 0o777) -> int:
        fd = open_(path, flags, mode)
        if path.endswith("lock"):
            return fd
        os.close(fd)
        return open_("/dev/full", os.O_WRONLY)

    uids = UidRange("one", first=FIRST, count=1, claims=str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", into_a_full_one)
        with pytest.raises(HostDiskFull, match="cannot claim a uid: No space left"):
            await uids.take("abcdefghijkl")
    assert os.listdir(tmp_path) == ["lock"]
    assert await uids.take("abcdefghijkl") == FIRST


async def test_a_uid_with_a_live_process_is_neither_taken_nor_freed(tmp_path: Path) -> None:
    uids = UidRange("one", first=os.getuid(), count=1, claims=str(tmp_path))
    assert os.getuid() in process_uids()
    with pytest.raises(CapacityExceeded):
        await uids.take("abcdefghijkl")
    assert not await uids.give_back(os.getuid())


async def test_an_accounts_uid_is_not_taken(tmp_path: Path) -> None:
    # 65534 is "nobody" on every Debian host, and has no process of its own here.
    uids = UidRange("one", first=65534, count=1, claims=str(tmp_path))
    with pytest.raises(CapacityExceeded):
        await uids.take("abcdefghijkl")


async def test_a_reclaimed_uid_is_held(tmp_path: Path) -> None:
    uids = UidRange("one", first=FIRST, count=1, claims=str(tmp_path))
    await uids.reclaim(FIRST, "abcdefghijkl")
    with pytest.raises(CapacityExceeded):
        await uids.take("mnopqrstuvwx")


def test_a_number_that_has_become_another_process_s_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list was read when the sandbox's process still had it."""
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        monkeypatch.setattr(module, "_processes", lambda: iter([(bystander.pid, FIRST)]))
        assert kill_processes(FIRST) == 1
        assert bystander.poll() is None
        monkeypatch.setattr(module, "_processes", lambda: iter([(bystander.pid, os.getuid())]))
        assert kill_processes(os.getuid()) == 1
        assert bystander.wait(10) == -9
        # Its number is free again.
        assert kill_processes(os.getuid()) == 1
