# SPDX-License-Identifier: Apache-2.0
"""Locks between processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.osutil.descriptors import open_directory
from sandboxd.osutil.locks import locked, locked_file, open_lock


def test_one_has_it_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with locked(open_lock(path)):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
        with pytest.raises(BlockingIOError), locked(open_lock(path), waits=False):
            pass
    with locked(open_lock(path), waits=False):
        pass


def test_a_directory_can_be_locked(tmp_path: Path) -> None:
    with locked(open_directory(str(tmp_path))):
        with pytest.raises(BlockingIOError):
            with locked(open_directory(str(tmp_path)), waits=False):
                pass


def test_a_file_removed_by_its_holder_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    opened: list[int] = []

    def open_late(name: str) -> int:
        opened.append(open_lock(name))
        if len(opened) == 1:
            path.unlink()
        return opened[-1]

    monkeypatch.setattr("sandboxd.osutil.locks.open_lock", open_late)
    with locked_file(str(path), waits=False) as fd:
        assert len(opened) == 2
        assert path.stat().st_ino == os.fstat(fd).st_ino
        with pytest.raises(BlockingIOError), locked_file(str(path), waits=False):
            pass
