# SPDX-License-Identifier: Apache-2.0
"""A runtime directory on a full file system, as where /run is: starts are refused by name, what
runs goes on, and its end is told truly."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.probes import executions, path_of, printed, python, refused, start
from tests.file_systems import daemon_on
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

pytestmark = pytest.mark.usefixtures("requires_root")
# A tmpfs of 1 MiB.
daemon = daemon_fixture(
    daemon_on,
    scope="function",
    kind="tmpfs",
    below="runtime",
    size="1m",
    SANDBOX_MEMORY_LIMIT_BYTES="64M",
    SANDBOX_CGROUP_MODE="off",
    SANDBOX_MAX_EXECUTIONS="64",
)


@contextmanager
def filled(daemon: Daemon, *, but_pages: int = 0) -> Iterator[None]:
    """So many pages of it are free. Directories, sockets and empty files of a tmpfs need none."""
    filler = daemon.runtime / "filler"
    with filler.open("wb", buffering=0) as file:
        free = os.statvfs(daemon.runtime)
        os.posix_fallocate(file.fileno(), 0, (free.f_bavail - but_pages) * free.f_frsize)
    try:
        assert os.statvfs(daemon.runtime).f_bavail == but_pages
        yield
    finally:
        filler.unlink()


def test_starts_are_refused_and_ends_are_told(daemon: Daemon) -> None:
    made = daemon.create()
    counting = start(daemon, made, "for n in 0 1 2 3 4; do echo $n; sleep 0.3; done; exit 5")
    eating = start(daemon, made, "echo up; until [ -e go ]; do sleep 0.05; done; tail /dev/zero")
    asleep = start(daemon, made, "echo up; exec sleep 300")
    for running in (eating, asleep):
        printed(daemon, running, b"up")
    with filled(daemon):
        for target, body in (
            ("/v1/sandboxes", {}),
            ("/v1/run", {"argv": ["true"]}),
            (executions(made), {"argv": ["true"]}),
        ):
            refused(daemon.request("POST", target, body), 503, "HOST_DISK_FULL")
        box = f"/v1/sandboxes/{made['id']}"
        refused(daemon.request("POST", f"{box}/suspend"), 503, "HOST_DISK_FULL")
        assert daemon.ok("GET", box)["state"] == "ready"
        ended = daemon.wait(counting)
        assert (ended["exit_code"], ended["stdout"]) == (5, "0\n1\n2\n3\n4\n")
        assert daemon.ok("POST", f"{path_of(asleep)}/kill", {})["status"] == "KILLED"
        daemon.ok("PUT", f"{box}/files/go", b"")
        assert daemon.wait(eating)["status"] == "OOM_KILLED"
    alive: Any = daemon.ok("GET", "/v1/sandboxes?state=ready")["sandboxes"]
    assert [one["id"] for one in alive] == [made["id"]]
    assert daemon.execute(made["id"], ["echo", "on"])["stdout"] == "on\n"


def test_what_is_supervised_is_never_half_told(daemon: Daemon) -> None:
    """With one page free a state of two is refused, and the one that is in force stays."""
    made = daemon.create()
    state = daemon.runtime / "supervised" / f"{made['id']}.json"
    while state.stat().st_size <= os.sysconf("SC_PAGE_SIZE"):
        printed(daemon, start(daemon, made, "echo up; exec sleep 300"), b"up")
    before = json.loads(state.read_bytes())["executions"]
    with filled(daemon, but_pages=1):
        hog = python("held = bytearray(300 << 20)")
        answer = daemon.request("POST", executions(made), {"argv": hog})
        refused(answer, 503, "HOST_DISK_FULL")
        assert json.loads(state.read_bytes())["executions"] == before
        assert [path.name for path in state.parent.glob("*.tmp")] == []
    ran = daemon.execute(made["id"], python("held = bytearray(300 << 20)"))
    assert ran["status"] == "OOM_KILLED"


def test_a_release_on_a_full_one_leaves_nothing(daemon: Daemon) -> None:
    made = daemon.create()
    printed(daemon, start(daemon, made, "echo up; exec sleep 300"), b"up")
    with filled(daemon):
        daemon.release(made["id"])
        assert list((daemon.runtime / "executions").iterdir()) == []


def test_a_daemon_says_why_it_does_not_start_on_a_full_one(daemon: Daemon) -> None:
    made = daemon.create()
    running = start(daemon, made, "echo up; until [ -e go ]; do sleep 0.05; done; exit 3")
    printed(daemon, running, b"up")
    with filled(daemon):
        daemon.kill()
        with pytest.raises(AssertionError, match="cannot have sandbox") as told:
            daemon.start()
        assert "Traceback" not in str(told.value)
    daemon.start()
    assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
    daemon.execute(made["id"], ["touch", "go"])
    assert daemon.wait(running)["exit_code"] == 3
