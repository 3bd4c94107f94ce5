# SPDX-License-Identifier: Apache-2.0
"""The history on disk is there whole or not at all, bounded, and never in the way of a start."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from sandboxd.core.totals import Interval, SavedHistory, UsageTotals
from sandboxd.errors import HostStorageFailed
from sandboxd.records.history import DiskHistory
from tests.unit.values import NOW


def interval(number: int) -> Interval:
    sums = UsageTotals(
        cpu_seconds=1.5, memory_bytes=7, executions=2, ended=Counter(EXITED=number),
        refused=Counter(LIMIT_TOO_LARGE=1),
    )  # fmt: skip
    return Interval(NOW + timedelta(minutes=number), {1000: sums, -1: UsageTotals()})


def past(*numbers: int) -> SavedHistory:
    return SavedHistory(
        NOW, [interval(n) for n in numbers], {("s" * 12, "e" * 12): (1.5, 0.0, 3.0)}
    )


def file(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


async def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    store = DiskHistory(str(tmp_path), kept=3)
    assert await store.load() is None
    await store.save(past(1, 2))
    await store.save(SavedHistory(NOW, [interval(3), interval(4)], {}))
    found = await DiskHistory(str(tmp_path), kept=3).load()
    assert found == SavedHistory(NOW, [interval(2), interval(3), interval(4)], {})
    await store.save(past(5))
    found = await store.load()
    assert found is not None
    assert found.counted == {("s" * 12, "e" * 12): [1.5, 0.0, 3.0]}
    assert file(tmp_path).stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["history.sqlite"]


async def test_the_file_stops_growing(tmp_path: Path) -> None:
    store = DiskHistory(str(tmp_path), kept=50)
    sizes = []
    for number in range(300):
        await store.save(past(number))
        sizes.append(file(tmp_path).stat().st_size)
    assert sizes[-1] == sizes[120]


@pytest.mark.parametrize("text", [b"no database at all, and longer than a header" * 10, b"{}"])
async def test_what_cannot_be_read_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    file(tmp_path).write_bytes(text)
    store = DiskHistory(str(tmp_path), kept=3)
    assert await store.load() is None
    assert "set aside" in caplog.text
    assert (tmp_path / "history.sqlite.unreadable").read_bytes() == text
    await store.save(past(1))
    assert await store.load() == past_of(await store.load())


def past_of(found: SavedHistory | None) -> SavedHistory:
    assert found is not None
    assert found.intervals == [interval(1)]
    return found


@pytest.mark.parametrize(
    "statement",
    ["UPDATE intervals SET by_owner = '{\"x\": 1}'", "UPDATE known SET since = 'never'",
     "UPDATE counted SET amounts = 'no'", "UPDATE counted SET amounts = '[1.0]'",
     "UPDATE intervals SET begun = '2026-01-02T03:04:05'",
     "UPDATE known SET since = CAST(x'ff' AS TEXT)", "DROP TABLE counted",
     "ALTER TABLE intervals RENAME begun TO started"],
)  # fmt: skip
async def test_senseless_content_is_set_aside(tmp_path: Path, statement: str) -> None:
    store = DiskHistory(str(tmp_path), kept=3)
    await store.save(past(1))
    with sqlite3.connect(file(tmp_path)) as database:
        database.execute(statement)
    database.close()
    assert await store.load() is None
    assert not file(tmp_path).exists()


async def test_a_newer_sandboxds_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = DiskHistory(str(tmp_path), kept=3)
    await store.save(past(1))
    with sqlite3.connect(file(tmp_path)) as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    before = file(tmp_path).read_bytes()
    assert await store.load() is None
    assert "version 9" in caplog.text
    with pytest.raises(HostStorageFailed, match="version 9"):
        await store.save(past(2))
    assert file(tmp_path).read_bytes() == before


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"")
    file(tmp_path).symlink_to(target)
    store = DiskHistory(str(tmp_path), kept=3)
    assert await store.load() is None
    with pytest.raises(HostStorageFailed, match="history"):
        await store.save(past(1))
    assert target.read_bytes() == b""
