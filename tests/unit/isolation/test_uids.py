# SPDX-License-Identifier: Apache-2.0
"""Sandbox uids are nobody else's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandboxd.core.policy import DEFAULT_UID_COUNT, DEFAULT_UID_FIRST
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


@pytest.mark.parametrize("which", [0, 1])
async def test_a_subordinate_id_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    files = (tmp_path / "subuid", tmp_path / "subgid")
    files[which].write_text(f"root:1000000:1000000000\nsomebody:{FIRST}:3\nodd line\n")
    monkeypatch.setattr(module, "_SUBORDINATE", tuple(map(str, files)))
    uids = UidRange("one", first=FIRST, count=4, claims=str(tmp_path / "claims"))
    assert await uids.take("abcdefghijkl") == FIRST + 3
    with pytest.raises(CapacityExceeded):
        await uids.take("mnopqrstuvwx")


def test_the_default_range_is_nobody_elses_and_fits_ustar() -> None:
    taken = range(DEFAULT_UID_FIRST, DEFAULT_UID_FIRST + DEFAULT_UID_COUNT)
    # systemd's UIDS-GIDS: accounts, dynamic users, the 16-bit -1; containers. login.defs(5).
    assert all(uid not in taken for uid in (60577, 61184, 65519, 65534, 65535, 524288, 1879048191))
    assert taken[-1] < 100_000
    assert taken[-1] <= 0o7777777


async def test_a_uid_of_an_earlier_range_is_held_by_who_has_it(tmp_path: Path) -> None:
    uids = UidRange("one", first=FIRST, count=1, claims=str(tmp_path))
    await uids.reclaim(12345678, "abcdefghijkl")
    await uids.discard_unknown(["abcdefghijkl"])
    assert (tmp_path / "12345678").read_text() == "one abcdefghijkl\n"
    assert await uids.give_back(12345678)


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
        monkeypatch.setattr(module, "owners", lambda: iter([(bystander.pid, FIRST)]))
        assert kill_processes(FIRST) == 1
        assert bystander.poll() is None
        monkeypatch.setattr(module, "owners", lambda: iter([(bystander.pid, os.getuid())]))
        assert kill_processes(os.getuid()) == 1
        assert bystander.wait(10) == -9
        # Its number is free again.
        assert kill_processes(os.getuid()) == 1
