# SPDX-License-Identifier: Apache-2.0
"""The room of a file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.osutil.descriptors import closing_fd, open_directory
from sandboxd.osutil.space import Space, space_of


def test_blocks_are_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # bsize, frsize, blocks, bfree, bavail, files, ffree, favail, flag, namemax.
    told = os.statvfs_result([65536, 4096, 100, 40, 30, 1000, 600, 500, 0, 255])
    monkeypatch.setattr(os, "statvfs", lambda place: told)
    assert space_of("/") == Space(
        total_bytes=409600, used_bytes=245760, free_bytes=122880,
        inodes=1000, used_inodes=400, free_inodes=500,
    )  # fmt: skip


def test_a_descriptor_will_do(tmp_path: Path) -> None:
    with closing_fd(open_directory(str(tmp_path))) as fd:
        assert space_of(fd).total_bytes == space_of(str(tmp_path)).total_bytes > 0
