# SPDX-License-Identifier: Apache-2.0
"""Mounts, as proc_pid_mountinfo(5) writes them."""

from __future__ import annotations

import os
from pathlib import Path

from sandboxd.osutil.mountinfo import Mount, mounts


def test_a_line_is_a_mount(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_bytes(
        b"28 1 253:3 /sub /srv/a\\040b\\134\xff rw,noatime shared:1 - ext4 /dev/vda3 rw,quota\n"
    )
    assert list(mounts(str(tmp_path / "mountinfo"))) == [
        Mount(
            os.makedev(253, 3), "/sub", "/srv/a b\\\udcff", frozenset({"rw", "noatime"}),
            "ext4", "/dev/vda3", ("rw", "quota"),
        )
    ]  # fmt: skip


def test_a_source_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_bytes(b"30 28 0:5 / /x ro - cgroup  rw,memory\n")
    (found,) = mounts(str(tmp_path / "mountinfo"))
    assert (found.kind, found.source, found.super_options) == ("cgroup", "", ("rw", "memory"))


def test_this_process_has_a_root() -> None:
    assert any(mount.point == "/" for mount in mounts())
