# SPDX-License-Identifier: Apache-2.0
"""Nobody but root decides where the path of a bind leads."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sandboxd.isolation.sources import BadSource, open_source

USER = 1234


@pytest.fixture
def place(tmp_path: Path, requires_root: None) -> Path:
    """A directory of a user's, with a file in another one."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("x")
    users = tmp_path / "users"
    users.mkdir()
    os.chown(users, USER, USER)
    return users


def link(path: Path, target: str, uid: int) -> None:
    path.symlink_to(target)
    os.lchown(path, uid, uid)


def opened(path: Path) -> str:
    fd = open_source(str(path))
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def test_directories_and_files_are_opened_whoever_has_them(place: Path) -> None:
    assert opened(place) == str(place)
    assert opened(place.parent / "elsewhere" / "file") == str(place.parent / "elsewhere/file")


@pytest.mark.parametrize("target", ["/proc", "../elsewhere", "."])
@pytest.mark.parametrize("below", ["", "file"])
def test_links_of_a_user_are_not_followed(place: Path, target: str, below: str) -> None:
    link(place / "out", target, USER)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(BadSource, match=f"belongs to uid {USER}"):
        open_source(str(place / "out" / below))
    assert set(os.listdir("/proc/self/fd")) == before


def test_links_of_roots_are_followed(place: Path) -> None:
    link(place.parent / "relative", "users/../elsewhere", 0)
    link(place.parent / "absolute", f"{place.parent}/relative", 0)
    for name in ("relative", "absolute"):
        assert opened(place.parent / name) == str(place.parent / "elsewhere")
        assert opened(place.parent / name / "file") == str(place.parent / "elsewhere/file")


def test_what_leads_nowhere_is_an_error(place: Path) -> None:
    link(place.parent / "round", "round", 0)
    for name, number in (("round", errno.ELOOP), ("none", errno.ENOENT)):
        before = set(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match=os.strerror(number)):
            open_source(str(place.parent / name))
        assert set(os.listdir("/proc/self/fd")) == before
