# SPDX-License-Identifier: Apache-2.0
"""Disk limits on every kind of file system, each made for the test; the image is a loop device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import disk_limits
from tests.file_systems import daemon_on
from tests.harness import Daemon

pytestmark = pytest.mark.timeout(300)
HELD_BY = {"tmpfs": "supervisor", "ext4": "supervisor", "ext4-quota": "kernel"}


@pytest.fixture(scope="module", params=HELD_BY)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of file system."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def daemon(kind: str, requires_systemd: None) -> Iterator[Daemon]:
    """A daemon on one."""
    with daemon_on(kind, SANDBOX_CGROUP_MODE="required") as made:
        yield made


@pytest.mark.parametrize("where", [".", "/tmp"])
def test_fill_and_recover(daemon: Daemon, kind: str, where: str) -> None:
    disk_limits.check_fill_and_recover(daemon, held_by=HELD_BY[kind], where=where)


def test_inodes(daemon: Daemon, kind: str) -> None:
    disk_limits.check_inodes(daemon, held_by=HELD_BY[kind])


def test_api_writes(daemon: Daemon) -> None:
    disk_limits.check_api_writes(daemon)


def test_removed_but_open(daemon: Daemon) -> None:
    disk_limits.check_removed_but_open(daemon)


def test_usage(daemon: Daemon) -> None:
    disk_limits.check_usage(daemon)


def test_next_sandbox_has_it_all(daemon: Daemon) -> None:
    disk_limits.check_next_sandbox_has_it_all(daemon)


@pytest.mark.parametrize("kind", ["ext4-quota"], indirect=True)
def test_inodes_run_out_as_bytes_do(daemon: Daemon) -> None:
    sandbox = daemon.create(limits={"disk_bytes": 4 << 20})
    script = "i=0; while : > f$i; do i=$((i+1)); [ $i -lt 5000 ] || exit 9; done; ls | wc -l"
    ended = daemon.execute(sandbox["id"], script, timeout_seconds=120)
    assert "quota" in ended["stderr"].lower(), ended
    daemon.release(sandbox["id"])
