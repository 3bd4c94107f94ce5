# SPDX-License-Identifier: Apache-2.0
"""A start that fails takes back what it made, and nothing that was there before."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.contract.probes import eventually, executions, output, printed
from tests.harness import Daemon
from tests.integration.process import run_daemon, unstarted

TICK = "n=0; while :; do n=$((n + 1)); echo $n; sleep 0.02; done"


def made(daemon: Daemon) -> list[str]:
    """Mounts below the runtime directory, processes that name it, and the API's socket."""
    runtime = str(daemon.runtime)
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [line.split()[4] for line in mounts if f" {runtime}/" in line]
    found += [str(path) for path in daemon.runtime.glob("s.sock")]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(word.startswith(runtime) for word in words):
            found.append(" ".join(words))
    return sorted(found)


@contextmanager
def a_ready_file_that_cannot_be(_daemon: Daemon) -> Iterator[dict[str, str]]:
    yield {"SANDBOX_READY_FILE": "/nonexistent/ready"}


@contextmanager
def a_socket_that_is_taken(daemon: Daemon) -> Iterator[dict[str, str]]:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(daemon.socket)
        other.listen()
        yield {}


@contextmanager
def a_newer_record(daemon: Daemon) -> Iterator[dict[str, str]]:
    directory = daemon.state / "sandboxes" / "aaaaaaaaaaaa"
    directory.mkdir(parents=True)
    (directory / "sandbox.json").write_text(json.dumps({"version": 9999}))
    yield {}
    shutil.rmtree(directory)


Way = Callable[[Daemon], AbstractContextManager[dict[str, str]]]
WAYS = (a_ready_file_that_cannot_be, a_socket_that_is_taken, a_newer_record)


@pytest.mark.usefixtures("requires_root")
@pytest.mark.parametrize("way", WAYS)
def test_a_start_that_fails_leaves_nothing(way: Way) -> None:
    with unstarted(SANDBOX_CGROUP_MODE="off") as daemon, way(daemon) as settings:
        before = made(daemon)
        assert "cannot" in refuse(daemon, settings)
        assert made(daemon) == before


def refuse(daemon: Daemon, settings: dict[str, str]) -> str:
    status, words = run_daemon(daemon, SANDBOX_CGROUP_MODE="off", **settings)
    assert status == 1, words
    assert "Traceback" not in words
    return words


@pytest.mark.usefixtures("requires_root")
def test_a_start_that_fails_takes_nothing_from_what_runs() -> None:
    with unstarted(SANDBOX_CGROUP_MODE="off") as daemon:
        daemon.start()
        box = daemon.create(limits={"memory_bytes": "64M"})
        running = daemon.execute(box["id"], TICK, wait=False)
        printed(daemon, running, b"5\n")
        daemon.kill()
        before = made(daemon)
        refuse(daemon, {"SANDBOX_READY_FILE": "/nonexistent/ready"})
        assert set(before) - set(made(daemon)) <= {daemon.socket}
        daemon.start()
        size = len(output(daemon, running))
        eventually(lambda: len(output(daemon, running)) > size)
        assert daemon.execute(box["id"], ["true"])["exit_code"] == 0
        assert len(daemon.ok("GET", executions(box))["executions"]) == 2
