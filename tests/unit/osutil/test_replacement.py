# SPDX-License-Identifier: Apache-2.0
"""Files replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.osutil.replacement import replace_file, umask


def test_the_umask_is_read() -> None:
    mask = os.umask(0o027)
    try:
        assert umask() == 0o027
    finally:
        os.umask(mask)


@pytest.mark.parametrize("name", ["missing/dir/x", "file/x"])
def test_an_error_names_the_target_and_no_name_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    target = str(tmp_path / name)
    with pytest.raises((FileNotFoundError, NotADirectoryError)) as caught:
        replace_file(target, [b"x"], 0o644, 0)
    assert caught.value.filename == target
    assert os.listdir(tmp_path) == ["file"]


def test_a_directory_in_the_way_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        replace_file(str(tmp_path / "taken"), [b"x"], 0o644, 0)
    assert caught.value.filename == str(tmp_path / "taken")
    assert os.listdir(tmp_path) == ["taken"]
