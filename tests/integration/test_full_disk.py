# SPDX-License-Identifier: Apache-2.0
"""A state directory on a full file system: errors by name, and nothing of what was is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.probes import executions, path_of, printed, refused, start
from tests.file_systems import daemon_on
from tests.harness import Daemon

pytestmark = pytest.mark.usefixtures("requires_root")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon whose state is on a tmpfs of 4 MiB."""
    with daemon_on("tmpfs", size="4m", SANDBOX_MEMORY_LIMIT_BYTES="64M") as running:
        yield running
        (running.state / "filler").unlink(missing_ok=True)


def fill(daemon: Daemon) -> Path:
    """Take the last byte of the state directory's file system."""
    path = daemon.state / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    found = os.statvfs(daemon.state)
    assert found.f_bavail == 0
    return path


def test_a_full_disk_is_told_and_loses_nothing(daemon: Daemon) -> None:
    made = daemon.create(name="kept", metadata={"a": "b"})
    done = daemon.execute(made["id"], "echo done; exit 3")
    running = start(daemon, made, "echo up; until [ -e go ]; do sleep 0.05; done; exit 4")
    printed(daemon, running, b"up")
    filler = fill(daemon)
    for method, target, body in (
        ("POST", "/v1/sandboxes", {}),
        ("POST", "/v1/run", {"argv": ["true"]}),
        ("POST", executions(made), {"argv": ["true"]}),
    ):
        error = refused(daemon.request(method, target, body), 503, "HOST_DISK_FULL")
        assert str(daemon.state) in str(error)
    # Refused requests left nothing, and what was is there.
    alive: Any = daemon.ok("GET", "/v1/sandboxes?state=ready")["sandboxes"]
    assert [one["id"] for one in alive] == [made["id"]]
    assert daemon.ok("GET", path_of(done)) == done
    assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
    filler.unlink()
    daemon.execute(made["id"], ["touch", "go"])
    assert daemon.wait(running)["exit_code"] == 4
    assert daemon.ok("GET", "/v1/sandboxes/kept")["metadata"] == {"a": "b"}
    daemon.release(daemon.create()["id"])
    daemon.kill()
    daemon.start()
    assert daemon.ok("GET", path_of(done)) == done
    assert daemon.ok("GET", path_of(running))["exit_code"] == 4


def test_an_end_on_a_full_disk_is_told_truly(daemon: Daemon) -> None:
    made = daemon.create()
    running = start(daemon, made, "echo up; sleep 1; echo more; exit 5")
    printed(daemon, running, b"up")
    fill(daemon)
    ended = daemon.wait(running)
    assert (ended["status"], ended["exit_code"]) == ("EXITED", 5)
    assert ended["stdout"].startswith("up\n")
    # What could not be kept is at least not passed over in silence.
    assert ended["stdout"] == "up\nmore\n" or ended["stdout_truncated"]


def test_release_works_on_a_full_disk_and_gives_room_back(daemon: Daemon) -> None:
    made = daemon.create()
    daemon.execute(made["id"], ["dd", "if=/dev/zero", "of=big", "bs=4096"], timeout_seconds=20)
    fill(daemon)
    refused(daemon.request("POST", "/v1/sandboxes", {}), 503, "HOST_DISK_FULL")
    daemon.release(made["id"])
    assert os.statvfs(daemon.state).f_bavail > 0
    again = daemon.create()
    assert daemon.execute(again["id"], ["true"])["exit_code"] == 0


def test_a_daemon_starts_on_a_full_disk_or_says_why_not(daemon: Daemon) -> None:
    made = daemon.create()
    done = daemon.execute(made["id"], ["echo", "kept"])
    filler = fill(daemon)
    daemon.kill()
    try:
        daemon.start()
    except AssertionError as error:
        words = str(error)
    else:
        words = ""
    assert "Traceback" not in words
    if not words:
        assert daemon.ok("GET", path_of(done)) == done
        return
    filler.unlink()
    daemon.start()
    assert daemon.ok("GET", path_of(done)) == done
