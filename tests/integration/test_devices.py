# SPDX-License-Identifier: Apache-2.0
"""The disk under real file systems of this host; through more layers: tests/system."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

import pytest

from sandboxd.workspace.device import backing
from tests.file_systems import mounted, run
from tests.harness import Daemon

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


def test_an_overlay_with_its_layers_out_of_sight_is_no_reason_to_end() -> None:
    """As in a container: what is the upper directory to the kernel is a path of the host's."""
    made = Daemon(SANDBOX_MEMORY_LIMIT_BYTES="96M")
    layers = made.state.with_name(f"{made.state.name}.layers")
    hide = f'mount -t tmpfs none {layers} && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", hide, "sh")
    try:
        with mounted("overlay", made.state):
            probe = f"from sandboxd.workspace.device import backing; print(backing('{made.state}'))"
            said = run(*prefix, sys.executable, "-c", probe)
            assert f"overlay on {layers}/upper, which is not to be seen from here" in said
            assert "device=None" in said
            try:
                made.start(prefix=prefix)
                sandbox = made.create()
                assert made.execute(sandbox["id"], "echo on")["stdout"] == "on\n"
            finally:
                made.end()
    finally:
        made.remove()
