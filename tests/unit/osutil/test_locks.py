# SPDX-License-Identifier: Apache-2.0
"""Locks between processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.osutil.descriptors import open_directory
from sandboxd.osutil.locks import locked, open_lock


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
