# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys on disk: kept for their time and no longer, for each caller apart, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.errors import HostStorageFailed, QuotaExceeded
from sandboxd.records.keys import KEPT_SECONDS, UNANSWERED_SECONDS, DiskKeys

ME, OTHER = 1000, 1001


class Clock:
    seconds = 1e9

    def __call__(self) -> float:
        return self.seconds


def opened(path: Path, clock: Callable[[], float], **bounds: int) -> DiskKeys:
    keys = DiskKeys(str(path), now=clock, **bounds)
    keys.open()
    return keys


async def test_an_answer_is_kept_over_restarts_for_its_time(tmp_path: Path) -> None:
    clock = Clock()
    keys = opened(tmp_path, clock)
    begun = await keys.begin(ME, "k", "print", "rrrrrrrrrrrr")
    clock.seconds += KEPT_SECONDS * 2
    # However long it takes: the time begins with the answer.
    await keys.keep(begun, 201, b'{"a": "\n"}')
    clock.seconds += KEPT_SECONDS - 1
    again = opened(tmp_path, clock)
    found = again.find(ME, "k")
    assert found is not None
    assert (found.status, found.fingerprint, found.request_id) == (201, "print", "rrrrrrrrrrrr")
    assert await again.body(found) == b'{"a": "\n"}'
    assert again.find(OTHER, "k") is None
    clock.seconds += 2
    assert again.find(ME, "k") is None
    await again.begin(ME, "other", "print", "ssssssssssss")
    assert len(list((tmp_path / "keys").iterdir())) == 1


async def test_one_without_an_answer_is_kept_past_the_longest_execution(tmp_path: Path) -> None:
    clock = Clock()
    await opened(tmp_path, clock).begin(ME, "k", "print", "rrrrrrrrrrrr")
    clock.seconds += 7 * 86400
    found = opened(tmp_path, clock).find(ME, "k")
    assert found is not None
    assert found.status is None
    clock.seconds += UNANSWERED_SECONDS
    assert opened(tmp_path, clock).find(ME, "k") is None
    assert list((tmp_path / "keys").iterdir()) == []


async def test_a_forgotten_one_leaves_nothing(tmp_path: Path) -> None:
    keys = opened(tmp_path, Clock())
    await keys.forget(await keys.begin(ME, "k", "print", "rrrrrrrrrrrr"))
    assert keys.find(ME, "k") is None
    assert list((tmp_path / "keys").iterdir()) == []


async def test_each_caller_has_a_bound(tmp_path: Path) -> None:
    keys = opened(tmp_path, Clock(), max_keys=2)
    for name in ("a", "b"):
        await keys.begin(ME, name, "print", "rrrrrrrrrrrr")
    with pytest.raises(QuotaExceeded) as caught:
        await keys.begin(ME, "c", "print", "rrrrrrrrrrrr")
    assert (caught.value.details["maximum"], caught.value.details["used"]) == (2, 2)
    await keys.begin(OTHER, "c", "print", "rrrrrrrrrrrr")
    keys = opened(tmp_path / "bytes", Clock(), max_bytes=100)
    await keys.keep(await keys.begin(ME, "a", "print", "rrrrrrrrrrrr"), 200, b"x" * 100)
    with pytest.raises(QuotaExceeded):
        await keys.begin(ME, "b", "print", "rrrrrrrrrrrr")


async def test_a_disk_that_fails_refuses_before_anything_is_done(tmp_path: Path) -> None:
    keys = opened(tmp_path, Clock())
    (tmp_path / "keys").rmdir()
    with pytest.raises(HostStorageFailed, match="No such file"):
        await keys.begin(ME, "k", "print", "rrrrrrrrrrrr")
    assert keys.find(ME, "k") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]\n", b'{"version": 9}\n', b"\xff" * 9000])
def test_a_torn_file_is_no_key(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / f"{ME}-abc").write_bytes(content)
    (tmp_path / "keys" / f"{ME}-abc.tmp").write_bytes(b"")
    keys = opened(tmp_path, Clock())
    assert keys.find(ME, "abc") is None
    assert list((tmp_path / "keys").iterdir()) == []


async def test_many_at_once_do_not_pass_the_bound(tmp_path: Path) -> None:
    keys = opened(tmp_path, Clock(), max_keys=5)
    begun = await asyncio.gather(
        *(keys.begin(ME, f"{n}", "print", "rrrrrrrrrrrr") for n in range(20)),
        return_exceptions=True,
    )
    assert sum(isinstance(one, QuotaExceeded) for one in begun) == 15
