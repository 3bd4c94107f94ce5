# SPDX-License-Identifier: Apache-2.0
"""Directories on the way: made one in the other, and never beyond the home."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.core.entries import MAX_DEPTH
from sandboxd.osutil import linux
from sandboxd.workspace import beneath
from sandboxd.workspace.beneath import make_directories, opened_home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[int]:
    """A home's descriptor."""
    with opened_home(str(tmp_path)) as fd:
        yield fd


def test_the_cost_is_that_of_the_depth(
    home: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = 0
    real = linux.openat2

    def counted(directory: int, path: bytes, flags: int, *, resolve: int) -> int:
        nonlocal names
        names += path.count(b"/") + 1
        return real(directory, path, flags, resolve=resolve)

    monkeypatch.setattr(linux, "openat2", counted)
    path = b"/".join([b"a"] * MAX_DEPTH)
    make_directories(home, path, 0o750)
    # Each made, opened for its mode and entered, and eight looks at a part: no square of the depth.
    assert names < 12 * MAX_DEPTH
    names = 0
    make_directories(home, path + b"/b", 0o700)
    assert names < 12 * MAX_DEPTH
    made = tmp_path / os.fsdecode(path)
    assert stat.S_IMODE(made.stat().st_mode) == 0o750
    assert stat.S_IMODE((made / "b").stat().st_mode) == 0o700


def test_links_lead_within(home: int, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "up").symlink_to("../a/b")
    make_directories(home, b"a/up/c/d", 0o755)
    assert (tmp_path / "a" / "b" / "c" / "d").is_dir()
    make_directories(home, b"a/up", 0o755)


@pytest.mark.parametrize("target", ["/tmp", "../..", "a/../../x"])
def test_links_do_not_lead_out(home: int, tmp_path: Path, target: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OSError, match=r"(?i)cross-device"):
        make_directories(home, b"link/new", 0o755)


def test_what_is_no_directory_stays(home: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken").symlink_to("nothing")
    for path in (b"file", b"file/x"):
        with pytest.raises(NotADirectoryError):
            make_directories(home, path, 0o755)
    for path in (b"broken", b"broken/x"):
        with pytest.raises(FileExistsError):
            make_directories(home, path, 0o755)
    assert sorted(os.listdir(tmp_path)) == ["broken", "file"]


def test_a_link_put_there_meanwhile_leads_nowhere(
    home: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()

    def swapped(parent: int, name: bytes, mode: int) -> None:
        os.symlink("other", name, dir_fd=parent)

    monkeypatch.setattr(beneath, "make_directory", swapped)
    with pytest.raises(FileExistsError):
        make_directories(home, b"new/x", 0o755)
    assert os.listdir(tmp_path / "other") == []
