# SPDX-License-Identifier: Apache-2.0
"""btrfs: subvolumes and read-only snapshots are not made inside, and go away where they are."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

import pytest

from sandboxd.osutil.privileges import of_this_process
from sandboxd.workspace.removal import remove_tree
from tests.conftest import unmet
from tests.contract.probes import python, refused, require_level
from tests.contract.test_files import files
from tests.file_systems import daemon_on, mounted, run
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

pytestmark = [pytest.mark.usefixtures("requires_root"), pytest.mark.timeout(180)]

CREATE, SNAPSHOT, SET_FLAGS = 0x5000940E, 0x50009417, 0x4008941A
READ_ONLY = 2
# Every request that makes, marks or removes one, on the home itself.
TRY_ALL = """
import fcntl, os
home = os.open(".", os.O_RDONLY)
for request in (0x5000940E, 0x50009418, 0x50009401, 0x50009417, 0x5000940F, 0x5000943F):
    try:
        fcntl.ioctl(home, request, bytearray(4096))
    except OSError as exc:
        print(exc.errno)
"""


def has_btrfs() -> bool:
    """Whether the kernel has it, or loads it when it is mounted."""
    module = Path("/lib/modules") / os.uname().release / "kernel/fs/btrfs"
    return "btrfs" in Path("/proc/filesystems").read_text().split() or module.exists()


@pytest.fixture(scope="module", autouse=True)
def requires_btrfs() -> None:
    if not has_btrfs():
        unmet("btrfs in this kernel")


daemon = daemon_fixture(daemon_on, needs=["requires_btrfs"], kind="btrfs")


def ioctl(directory: Path, request: int, data: bytes) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, request, bytearray(data))
    finally:
        os.close(fd)


def make_subvolume(path: Path) -> None:
    ioctl(path.parent, CREATE, struct.pack("=q4088s", 0, os.fsencode(path.name)))


def make_snapshot(of: Path, path: Path) -> None:
    """A read-only one."""
    source = os.open(of, os.O_RDONLY | os.O_DIRECTORY)
    try:
        data = struct.pack("=qQQ32x4040s", source, 0, READ_ONLY, os.fsencode(path.name))
        ioctl(path.parent, SNAPSHOT, data)
    finally:
        os.close(source)


def plant(top: Path) -> None:
    """Subvolumes in subvolumes, snapshots of them, and one made read-only with others in it."""
    make_subvolume(top / "s")
    (top / "s" / "d" / "e").mkdir(parents=True)
    (top / "s" / "d" / "f").write_text("x")
    make_snapshot(top / "s", top / "snapshot")
    make_subvolume(top / "s" / "d" / "inner")
    (top / "s" / "d" / "inner" / "g").mkdir()
    make_subvolume(top / "s" / "d" / "inner" / "g" / "innermost")
    make_snapshot(top / "s", top / "s" / "d" / "e" / "of-itself")
    ioctl(top / "s" / "d" / "inner", SET_FLAGS, struct.pack("=Q", READ_ONLY))
    ioctl(top / "s", SET_FLAGS, struct.pack("=Q", READ_ONLY))


def subvolumes(path: Path) -> str:
    return run("btrfs", "subvolume", "list", str(path))


def test_a_tree_with_subvolumes_goes_away(tmp_path: Path) -> None:
    place = tmp_path / "fs"
    place.mkdir()
    with mounted("btrfs", place):
        for name in ("top", "other"):
            (place / name / "deep").mkdir(parents=True)
            plant(place / name / "deep")
        make_subvolume(place / "itself")
        plant(place / "itself")
        remove_tree(str(place / "top"), of_this_process())
        # In pieces, as builders do.
        while not remove_tree(str(place / "other"), of_this_process(), most=10):
            pass
        remove_tree(str(place / "itself"), of_this_process())
        assert os.listdir(place) == []
        run("btrfs", "filesystem", "sync", str(place))
        assert subvolumes(place) == ""


def test_a_file_system_that_is_read_only_is_said(tmp_path: Path) -> None:
    place = tmp_path / "fs"
    place.mkdir()
    with mounted("btrfs", place):
        (place / "top").mkdir()
        run("mount", "-o", "remount,ro", str(place))
        with pytest.raises(OSError, match="Read-only"):
            remove_tree(str(place / "top"), of_this_process())
        assert os.path.exists(place / "top")


@pytest.mark.parametrize("level", ["basic", "standard"])
def test_none_can_be_made_inside(daemon: Daemon, level: str) -> None:
    sandbox = daemon.create(isolation=require_level(daemon, level))
    try:
        ended = daemon.execute(sandbox["id"], python(TRY_ALL))
        assert ended["stdout"].split() == [str(errno.EPERM)] * 6, ended
    finally:
        daemon.release(sandbox["id"])
    assert subvolumes(daemon.state) == ""


def test_those_of_an_earlier_daemon_s_sandbox_are_released(daemon: Daemon) -> None:
    sandbox = daemon.create()
    home = daemon.state / "sandboxes" / sandbox["id"] / "home"
    (home / "a").mkdir()
    plant(home)
    plant(home / "a")
    assert daemon.request("DELETE", files(sandbox, "a")).status == 204
    refused(daemon.request("DELETE", files(sandbox, "snapshot")), 409, "FILE_CONFLICT")
    daemon.release(sandbox["id"])
    assert not home.exists()
    run("btrfs", "filesystem", "sync", str(daemon.state))
    assert subvolumes(daemon.state) == ""
