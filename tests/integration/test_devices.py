# SPDX-License-Identifier: Apache-2.0
"""The disk under real file systems of this host; through more layers: tests/system."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from sandboxd.workspace.device import backing
from tests.file_systems import mounted

pytestmark = pytest.mark.usefixtures("requires_root")


def test_a_loop_device_is_the_image_s_disk(tmp_path: Path) -> None:
    with mounted("ext4", tmp_path):
        found = backing(str(tmp_path))
        assert re.fullmatch(r"loop\d+", found.detail)
        assert found.device == f"/dev/{found.detail}"
        assert stat.S_ISBLK(os.stat(found.device).st_mode)


def test_below_memory_there_is_none(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path):
        found = backing(str(tmp_path))
    assert (found.device, found.detail) == (None, "tmpfs, which has no block device")
