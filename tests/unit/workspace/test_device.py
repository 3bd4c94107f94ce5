# SPDX-License-Identifier: Apache-2.0
"""Down to the disk, in trees in the form of /sys and /dev."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.workspace.device import Backing, backing


class Host:
    """A made-up host. `numbers`: path -> device number, as stat(2) would say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.numbers = {"/state": os.makedev(0, 40)}
        for name in ("block", "devices", "dev"):
            (path / name).mkdir()
        self.mount("25 1 0:39 / / rw - tmpfs tmpfs rw")

    def disk(self, name: str, *slaves: str, within: str = "") -> Path:
        directory = self.path / "devices" / within / name
        (directory / "slaves").mkdir(parents=True)
        for slave in slaves:
            (directory / "slaves" / slave).symlink_to(self.path / "devices" / slave)
        (self.path / "dev" / name).touch()
        return directory

    def puts(self, path: str, directory: Path) -> None:
        """Have a path on a disk."""
        minor = len(list((self.path / "block").iterdir()))
        self.numbers[path] = os.makedev(254, minor)
        (self.path / "block" / f"254:{minor}").symlink_to(directory)

    def mount(self, line: str) -> None:
        (self.path / "mountinfo").write_text(f"{line}\n")

    def number_of(self, path: str) -> int:
        if path not in self.numbers:
            raise FileNotFoundError(path)
        return self.numbers[path]

    def backing(self) -> Backing:
        found = backing(
            "/state", sys_root=str(self.path / "block"), mountinfo=str(self.path / "mountinfo"),
            nodes=str(self.path / "dev"), number_of=self.number_of,
        )  # fmt: skip
        node = found.device and found.device.removeprefix(f"{self.path}")
        return Backing(node, found.detail)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_partition_is_its_disk(host: Host) -> None:
    host.disk("sda")
    partition = host.disk("sda3", within="sda")
    (partition / "partition").write_text("3\n")
    host.puts("/state", partition)
    assert host.backing() == Backing("/dev/sda", "sda3 on sda")


def test_lvm_on_encryption_on_one_disk(host: Host) -> None:
    host.disk("nvme0n1")
    host.disk("dm-0", "nvme0n1")
    host.puts("/state", host.disk("dm-1", "dm-0"))
    assert host.backing() == Backing("/dev/nvme0n1", "dm-1 on dm-0 on nvme0n1")


def test_several_disks_are_limited_where_they_are_one(host: Host) -> None:
    host.disk("sda")
    host.disk("sdb")
    host.disk("md0", "sda", "sdb")
    host.puts("/state", host.disk("dm-0", "md0"))
    assert host.backing() == Backing("/dev/md0", "dm-0 on md0")


def test_an_image_is_limited_where_it_is_a_disk(host: Host) -> None:
    loop = host.disk("loop3")
    (loop / "loop").mkdir()
    (loop / "loop" / "backing_file").write_text("/images/a\n")
    host.puts("/images/a", host.disk("sdb"))
    host.puts("/state", host.disk("dm-0", "loop3"))
    assert host.backing() == Backing("/dev/loop3", "dm-0 on loop3")


def test_an_overlay_on_itself_is_on_nothing(host: Host) -> None:
    host.mount("25 1 0:40 / / rw - overlay overlay rw,lowerdir=/a,upperdir=/")
    found = host.backing()
    assert found.device is None
    assert found.detail.endswith("too many layers to follow")


def test_an_overlay_is_on_its_upper_directory(host: Host) -> None:
    host.mount(r"25 1 0:40 / / rw shared:1 - overlay overlay rw,lowerdir=/a,upperdir=/u\040p")
    host.puts("/u p/state", host.disk("sda"))
    assert host.backing() == Backing("/dev/sda", "overlay on sda")


def test_an_overlay_s_part_that_is_mounted(host: Host) -> None:
    host.mount("25 1 0:40 /var/lib /state rw - overlay overlay rw,lowerdir=/a,upperdir=/u")
    host.puts("/u/var/lib", host.disk("sda"))
    assert host.backing() == Backing("/dev/sda", "overlay on sda")


def test_an_upper_directory_out_of_sight_is_said(host: Host) -> None:
    """In a container it is the host's; another directory may have its name there."""
    host.mount("25 1 0:40 / / rw - overlay overlay rw,lowerdir=/a,upperdir=/u")
    host.puts("/u", host.disk("sda"))
    unseen = "overlay on /u/state, which is not to be seen from here"
    assert host.backing() == Backing(None, unseen)


def test_a_device_without_a_node_is_said(host: Host) -> None:
    host.mount("25 1 0:40 /sub / rw - btrfs /dev/sdc rw,subvol=/sub")
    assert host.backing() == Backing(None, "btrfs on /dev/sdc, which is not to be seen from here")


def test_btrfs_is_on_what_it_was_mounted_from(host: Host) -> None:
    host.mount("25 1 0:40 /sub /x rw - btrfs /dev/sdc rw,subvol=/sub")
    host.puts("/dev/sdc", host.disk("sdc"))
    assert host.backing() == Backing("/dev/sdc", "btrfs on sdc")


@pytest.mark.parametrize(
    ("line", "detail"),
    [("25 1 0:40 / /x rw - tmpfs tmpfs rw", "tmpfs, which has no block device"),
     ("25 1 0:40 / /x rw - nfs4 host:/x rw", "nfs4, which has no block device"),
     ("25 1 0:39 / /x rw - tmpfs tmpfs rw",
      "a file system that this process does not see mounted")],
)  # fmt: skip
def test_what_cannot_be_known_is_said(host: Host, line: str, detail: str) -> None:
    host.mount(line)
    assert host.backing() == Backing(None, detail)


def test_this_host_says_something(tmp_path: Path) -> None:
    found = backing(str(tmp_path))
    assert found.detail
    assert found.device is None or found.device.startswith("/dev/")
