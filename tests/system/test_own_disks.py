# SPDX-License-Identifier: Apache-2.0
"""Disks of sandboxes' own under systemd: SANDBOX_DISK_MEANS=image."""

from __future__ import annotations

import pytest

from tests import disk_limits, own_disks
from tests.contract.test_files import put
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

pytestmark = pytest.mark.timeout(300)
daemon = daemon_fixture(
    own_disks.daemon_with_images, needs=["requires_systemd"], SANDBOX_CGROUP_MODE="required"
)


@pytest.mark.parametrize(("level", "where"), [("basic", "."), ("standard", "/tmp")])
def test_fill_and_recover(daemon: Daemon, level: str, where: str) -> None:
    disk_limits.check_fill_and_recover(daemon, held_by="kernel", where=where, isolation=level)


def test_inodes(daemon: Daemon) -> None:
    disk_limits.check_inodes(daemon, held_by="kernel")


def test_usage(daemon: Daemon) -> None:
    disk_limits.check_usage(daemon)


@pytest.mark.parametrize("level", ["basic", "standard"])
def test_nothing_stays_after_a_release(daemon: Daemon, level: str) -> None:
    own_disks.check_gone_after_release(daemon, isolation=level)


def test_limit_is_lowered(daemon: Daemon) -> None:
    own_disks.check_limit_is_lowered(daemon)


def test_a_limit_far_above_the_first_makes_the_image_grow(daemon: Daemon) -> None:
    sandbox = daemon.create(limits={"disk_bytes": disk_limits.LIMIT})
    target = f"/v1/sandboxes/{sandbox['id']}"
    daemon.ok("PATCH", target, {"limits": {"disk_bytes": 8 * disk_limits.LIMIT}})
    assert put(daemon, sandbox, "big", bytes(6 * disk_limits.LIMIT)) == 201
    daemon.release(sandbox["id"])


def test_a_daemon_with_mounts_of_its_own_sees_them(requires_systemd: None) -> None:
    # As the package's unit has it (PrivateMounts=yes): what the spawner mounts has to reach it.
    daemon = Daemon(
        SANDBOX_DISK_MEANS="image", SANDBOX_CGROUP_MODE="required", SANDBOX_MEMORY_LIMIT_BYTES="96M"
    )
    with daemon.running(prefix=["unshare", "--mount", "--propagation", "slave"]) as made:
        sandbox = made.create(limits={"disk_bytes": disk_limits.LIMIT})
        put(made, sandbox, "mine", b"seen")
        assert made.execute(sandbox["id"], "cat mine")["stdout"] == "seen"
        made.release(sandbox["id"])
        assert not own_disks.is_mounted(sandbox["id"])


def test_next_daemon(daemon: Daemon) -> None:
    own_disks.check_next_daemon(daemon)
