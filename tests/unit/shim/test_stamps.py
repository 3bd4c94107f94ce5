# SPDX-License-Identifier: Apache-2.0
"""Times of output: true within what they promise, in bounded space, whole or not at all."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.core.times import OutputTimes
from sandboxd.protocol.times import ENTRY, HEADER, MAX_BYTES, MAX_ENTRIES, SUFFIX
from sandboxd.shim.pump import OutputStream
from sandboxd.shim.stamps import Stamps
from sandboxd.workspace.spool_times import parsed

BEGUN, BEGUN_AT = 50.0, 1_700_000_000.0
START = datetime.fromtimestamp(BEGUN_AT, UTC)
FINE = 0.01


class Clock:
    def __init__(self) -> None:
        self.now = BEGUN

    def __call__(self) -> float:
        return self.now


def written(spool: Path, moments: list[float], *, most: int = MAX_ENTRIES) -> None:
    """Stamp one byte at each of so many seconds after the start."""
    clock = Clock()
    stamps = Stamps(str(spool), BEGUN, BEGUN_AT, clock=clock, most=most)
    for offset, seconds in enumerate(moments):
        clock.now = BEGUN + seconds
        stamps.note(offset)
    stamps.close()


def file_of(spool: Path) -> Path:
    return spool.with_name(f"{spool.name}{SUFFIX}")


def read(spool: Path) -> OutputTimes:
    times = parsed(file_of(spool).read_bytes())
    assert times is not None
    return times


def entries(spool: Path) -> list[tuple[int, float]]:
    return list(ENTRY.iter_unpack(file_of(spool).read_bytes()[HEADER.size :]))


def seconds_at(times: OutputTimes, offset: int) -> float:
    found = times.at(offset)
    assert found is not None
    return (found - START).total_seconds()


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_nothing_is_written_before_there_is_output(tmp_path: Path) -> None:
    written(tmp_path / "stdout", [])
    assert not list(tmp_path.iterdir())


def test_a_byte_has_the_time_of_its_piece(tmp_path: Path) -> None:
    written(tmp_path / "stdout", [0.5, 0.501, 0.6])
    times = read(tmp_path / "stdout")
    assert [seconds_at(times, offset) for offset in range(4)] == [0.5, 0.5, 0.6, 0.6]
    assert list(times.cuts(0, 3)) == [2]
    assert list(times.cuts(0, 2)) == []
    assert list(times.cuts(2, 9)) == []
    for since, offset in ((0.0, 0), (0.505, 0), (0.52, 2), (0.6, 2), (0.62, None)):
        assert times.since(after(since)) == offset, since


def test_a_full_file_has_every_second_entry_left(tmp_path: Path) -> None:
    moments = [n * 0.011 for n in range(MAX_ENTRIES + 1)]
    written(tmp_path / "stdout", moments)
    left = [offset for offset, _ in entries(tmp_path / "stdout")]
    assert left == list(range(0, MAX_ENTRIES + 1, 2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stdout.times"]


def test_a_day_of_lines_takes_bounded_space(tmp_path: Path) -> None:
    moments = [n * 0.5 for n in range(2 * 86_400)]
    written(tmp_path / "stdout", moments)
    file = file_of(tmp_path / "stdout")
    assert MAX_BYTES // 3 < file.stat().st_size <= MAX_BYTES <= 64 * 1024
    times = read(tmp_path / "stdout")
    for offset, seconds in enumerate(moments):
        assert 0 <= seconds - seconds_at(times, offset) < 86_400 / 500


@given(
    gaps=st.lists(st.one_of(st.floats(0, 0.03), st.floats(0, 100)), min_size=1, max_size=200),
    most=st.integers(2, 16),
    ago=st.floats(-1, 200),
)
def test_times_are_true_within_their_precision(gaps: list[float], most: int, ago: float) -> None:
    moments = list(accumulate(gaps))
    with TemporaryDirectory() as directory:
        spool = Path(directory) / "stdout"
        written(spool, moments, most=most)
        times, kept = read(spool), entries(spool)
    assert 1 <= len(kept) <= most
    # A time has whole millionths of a second.
    tiny = 1e-6
    span = moments[-1] - moments[0]
    precision = max(FINE, 4 * span / (most // 2)) + tiny
    for offset, seconds in enumerate(moments):
        assert -tiny <= seconds - seconds_at(times, offset) < precision
    moment = moments[-1] - ago
    begin = times.since(after(moment))
    later = [offset for offset, seconds in enumerate(moments) if seconds >= moment + tiny]
    if later:
        assert begin is not None
        assert begin <= later[0]
    if begin is not None:
        assert moments[begin] > moment - precision


def test_what_is_torn_at_the_end_is_left_out(tmp_path: Path) -> None:
    written(tmp_path / "stdout", [1.0, 2.0, 3.0])
    data = file_of(tmp_path / "stdout").read_bytes()
    whole = HEADER.size + 2 * ENTRY.size
    for torn in (data[:-1], data[: whole + 1], data[:whole], data[:whole] + bytes(80)):
        times = parsed(torn)
        assert times is not None
        assert [seconds_at(times, offset) for offset in range(3)] == [1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "data", [b"", b"sbtimes1", bytes(400), b"x" * 400, b"sbtimes1" + bytes(20)]
)
def test_what_is_no_such_file_tells_nothing(data: bytes) -> None:
    assert parsed(data) is None


def test_nobody_knows_the_time_of_what_came_before_the_first_entry(tmp_path: Path) -> None:
    stamps = Stamps(str(tmp_path / "stdout"), BEGUN, BEGUN_AT, clock=lambda: BEGUN + 1)
    stamps.note(10)
    assert read(tmp_path / "stdout").at(9) is None
    assert seconds_at(read(tmp_path / "stdout"), 10) == 1.0


@pytest.mark.parametrize("failing", ["write", "rename"])
def test_rather_none_than_wrong_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    clock = Clock()
    stamps = Stamps(str(tmp_path / "stdout"), BEGUN, BEGUN_AT, clock=clock, most=2)
    for offset in range(4):
        clock.now += 1
        with monkeypatch.context() as patch:
            if offset == 2:
                patch.setattr(os, failing, fail)
            stamps.note(offset)
    assert not list(tmp_path.iterdir())


def test_a_byte_in_the_spool_has_its_time_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is told of new bytes looks at once."""
    spool = tmp_path / "stdout"
    reading, writing = os.pipe()
    stream = OutputStream(reading, str(spool), Stamps(str(spool), BEGUN, BEGUN_AT), 100)
    seen, write = [], os.write

    def look(fd: int, data: bytes) -> int:
        seen.append((spool.stat().st_size, len(entries(spool)) if file_of(spool).exists() else 0))
        return write(fd, data)

    write(writing, b"hello")
    monkeypatch.setattr(os, "write", look)
    assert stream.copy()
    # The header, the entry, the bytes.
    assert seen == [(0, 0), (0, 0), (0, 1)]
    monkeypatch.undo()
    stream.close()
    os.close(writing)
