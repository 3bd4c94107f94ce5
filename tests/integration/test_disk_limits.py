# SPDX-License-Identifier: Apache-2.0
"""Disk limits on file systems without quota, natively; with quota: tests/system."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests import disk_limits
from tests.contract.probes import python, refused
from tests.file_systems import daemon_on
from tests.harness import Daemon

pytestmark = [pytest.mark.usefixtures("requires_root"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=["tmpfs", "ext4"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon on a file system of its own."""
    with daemon_on(request.param) as made:
        yield made


@pytest.mark.parametrize("where", [".", "/tmp"])
def test_fill_and_recover(daemon: Daemon, where: str) -> None:
    disk_limits.check_fill_and_recover(daemon, held_by="supervisor", where=where)


def test_inodes(daemon: Daemon) -> None:
    disk_limits.check_inodes(daemon, held_by="supervisor")


def test_api_writes(daemon: Daemon) -> None:
    disk_limits.check_api_writes(daemon)


def test_removed_but_open(daemon: Daemon) -> None:
    disk_limits.check_removed_but_open(daemon)


def test_usage(daemon: Daemon) -> None:
    disk_limits.check_usage(daemon)


def test_next_sandbox_has_it_all(daemon: Daemon) -> None:
    disk_limits.check_next_sandbox_has_it_all(daemon)


def test_a_kernel_s_hold_can_be_required(daemon: Daemon) -> None:
    body = {"require": ["disk_bytes"], "require_by": "kernel"}
    refused(daemon.request("POST", "/v1/sandboxes", body), 400, "LIMIT_UNSUPPORTED")
    daemon.release(daemon.create(require=["disk_bytes"])["id"])


def test_a_tree_too_deep_for_paths_counts(daemon: Daemon) -> None:
    sandbox = daemon.create(limits={"disk_bytes": disk_limits.LIMIT})
    code = (
        "import os, time\n"
        "for level in range(1500):\n"
        "    os.mkdir('some-directory')\n"
        "    os.chdir('some-directory')\n"
        "for n in range(400):\n"
        "    fd = os.open(f'f{n}', os.O_WRONLY | os.O_CREAT)\n"
        "    os.write(fd, bytes(1 << 20))\n"
        "    time.sleep(0.03)\n"
    )
    ended = daemon.execute(sandbox["id"], python(code), timeout_seconds=60)
    assert ended["status"] == "DISK_QUOTA_EXCEEDED", ended
    daemon.release(sandbox["id"])
    assert not os.path.exists(daemon.state / "sandboxes" / sandbox["id"] / "home")


def test_no_new_sandbox_below_the_floor() -> None:
    with daemon_on("tmpfs", SANDBOX_DISK_FLOOR_BYTES="200M") as made:
        sandbox = made.create()
        filler = made.state / "filler"
        filler.write_bytes(bytes(80 << 20))
        error = refused(made.request("POST", "/v1/sandboxes", {}), 503, "HOST_DISK_FULL")
        assert error["details"]["floor_bytes"] == 200 << 20
        assert error["details"]["free_bytes"] < 200 << 20
        # What is there goes on.
        assert made.execute(sandbox["id"], "echo on > f; cat f")["stdout"] == "on\n"
        filler.unlink()
        made.release(made.create()["id"])
