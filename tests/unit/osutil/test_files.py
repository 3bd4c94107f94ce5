# SPDX-License-Identifier: Apache-2.0
"""Whole or not at all, also where a write is cut short."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.osutil.descriptors import closing_fd, open_directory
from sandboxd.osutil.files import names_in, remove_file, temporary_name, touch, write_whole


@contextmanager
def room_for(size_bytes: int) -> Iterator[None]:
    """Files of this process end at a size: write(2) is cut short, then refused, as on a disk that
    is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_new_one_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for data in (b"much longer than the next", b"short", b""):
        write_whole(str(path), data)
        assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_is_cut_short_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_whole(str(path), b"good")
    with room_for(10), pytest.raises(OSError, match="File too large"):
        write_whole(str(path), b"x" * 100)
    assert path.read_bytes() == b"good"
    assert list(tmp_path.iterdir()) == [path]


def test_space_that_was_taken_stays_taken(tmp_path: Path) -> None:
    path = tmp_path / "record"
    reserved = Path(temporary_name(str(path)))
    reserved.write_bytes(b"\0" * 50)
    with room_for(10), pytest.raises(OSError, match="File too large"):
        write_whole(str(path), b"x" * 40, keeps_space=True)
    assert reserved.stat().st_size == 50
    write_whole(str(path), b"x" * 40, keeps_space=True)
    assert path.read_bytes() == b"x" * 40
    assert not reserved.exists()


def test_what_an_earlier_writer_left_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "state"
    Path(temporary_name(str(path))).write_bytes(b"half of a longer state")
    write_whole(str(path), b"whole")
    assert path.read_bytes() == b"whole"


def test_it_writes_through_no_link(tmp_path: Path) -> None:
    path = tmp_path / "state"
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    os.symlink(target, temporary_name(str(path)))
    with pytest.raises(OSError, match="symbolic links"):
        write_whole(str(path), b"x")
    assert target.read_bytes() == b"mine"


def test_what_is_missing_is_no_error(tmp_path: Path) -> None:
    path = str(tmp_path / "mark")
    assert names_in(path) == []
    for _ in range(2):
        touch(path)
    assert names_in(str(tmp_path)) == ["mark"]
    assert os.stat(path).st_mode & 0o777 == 0o600
    for _ in range(2):
        remove_file(path)
    touch(path)
    with closing_fd(open_directory(str(tmp_path))) as above:
        remove_file("mark", above=above)
    assert names_in(str(tmp_path)) == []


def test_a_mark_is_made_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "mark").symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        touch(str(tmp_path / "mark"))
    assert names_in(str(tmp_path)) == ["mark"]
