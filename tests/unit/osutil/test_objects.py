# SPDX-License-Identifier: Apache-2.0
"""JSON objects in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.osutil import objects


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert objects.read_json(str(tmp_path), "one") is None
    objects.write_json(str(tmp_path), "one", {"a": [1, None]})
    assert objects.read_json(str(tmp_path), "one") == {"a": [1, None]}


@pytest.mark.parametrize("data", [b"", b"\0\0", b"[]", b"1", b"\xff", b"[" * 4096])
def test_what_is_no_object_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "one").write_bytes(data)
    with pytest.raises(ValueError):  # noqa: PT011 - the reader says what is wrong in its own words
        objects.read_json(str(tmp_path), "one")
