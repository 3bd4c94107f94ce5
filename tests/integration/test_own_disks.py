# SPDX-License-Identifier: Apache-2.0
"""Disks of sandboxes' own, natively: SANDBOX_DISK_MEANS=image."""

from __future__ import annotations

import pytest

from tests import disk_limits, own_disks
from tests.contract.probes import require_level
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

pytestmark = [pytest.mark.usefixtures("requires_root"), pytest.mark.timeout(180)]
LEVELS = ("basic", "standard")
daemon = daemon_fixture(own_disks.daemon_with_images)


@pytest.mark.parametrize(("level", "where"), [("basic", "/tmp"), ("standard", ".")])
def test_fill_and_recover(daemon: Daemon, level: str, where: str) -> None:
    require_level(daemon, level)
    disk_limits.check_fill_and_recover(daemon, held_by="kernel", where=where, isolation=level)


def test_api_writes(daemon: Daemon) -> None:
    disk_limits.check_api_writes(daemon)


def test_inodes(daemon: Daemon) -> None:
    disk_limits.check_inodes(daemon, held_by="kernel")


def test_usage(daemon: Daemon) -> None:
    disk_limits.check_usage(daemon)


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_stays_after_a_release(daemon: Daemon, level: str) -> None:
    own_disks.check_gone_after_release(daemon, isolation=require_level(daemon, level))


@pytest.mark.parametrize("level", LEVELS)
def test_own_disk_alone_is_seen(daemon: Daemon, level: str) -> None:
    own_disks.check_own_disk_alone_is_seen(daemon, isolation=require_level(daemon, level))


def test_limit_is_lowered(daemon: Daemon) -> None:
    own_disks.check_limit_is_lowered(daemon)


def test_next_daemon(daemon: Daemon) -> None:
    own_disks.check_next_daemon(daemon)


def test_a_host_without_loop_devices_is_named() -> None:
    covered = 'mount --bind /dev/null /dev/loop-control && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", covered, "sh"]
    words = r"cannot start with SANDBOX_DISK_MEANS=image: .*loop devices"
    with (
        pytest.raises(AssertionError, match=words),
        Daemon(SANDBOX_DISK_MEANS="image").running(prefix=prefix),
    ):
        pass
