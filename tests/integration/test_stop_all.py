# SPDX-License-Identifier: Apache-2.0
"""`sandboxd --stop-all` by wrong directories and with nothing to end; starts that are refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import ANOTHER_UID, requires_program
from tests.contract.probes import eventually, executions, find, printed, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.process import run_daemon, unstarted

SETTINGS = {"SANDBOX_MEMORY_LIMIT_BYTES": "64M", "SANDBOX_CGROUP_MODE": "off"}
daemon = daemon_fixture(partial(unstarted, **SETTINGS), scope="function")


def stop_all(
    daemon: Daemon, *, state: Path | None = None, runtime: Path | None = None,
    prefix: tuple[str, ...] = (),
) -> tuple[int, str]:  # fmt: skip
    """Exit status and words of a call with these directories in place of the daemon's."""
    own = daemon.state, daemon.runtime
    daemon.state, daemon.runtime = state or own[0], runtime or own[1]
    try:
        return run_daemon(daemon, "--stop-all", prefix=prefix, **SETTINGS)
    finally:
        daemon.state, daemon.runtime = own


@pytest.fixture
def mistyped(daemon: Daemon) -> Path:
    """A runtime directory that is none."""
    return daemon.runtime.with_name(f"{daemon.runtime.name}-x") / "deep"


@contextmanager
def as_who(who: str, daemon: Daemon) -> Iterator[tuple[str, ...]]:
    """A command that runs the daemon as this user. Another user reads the checkout all the same."""
    if who == "this user" or os.getuid() != 0:
        yield ()
        return
    requires_program("setpriv")
    for path in (daemon.state, daemon.runtime):
        os.chown(path, ANOTHER_UID, ANOTHER_UID)
    yield ("setpriv", f"--reuid={ANOTHER_UID}", f"--regid={ANOTHER_UID}", "--clear-groups",
           "--inh-caps=+dac_override", "--ambient-caps=+dac_override")  # fmt: skip


@pytest.mark.parametrize(
    ("who", "how"),
    [("this user", "another directory"), ("another user", "another directory"),
     ("another user", "a shim that hangs")],
)  # fmt: skip
def test_what_no_order_reaches_is_ended(daemon: Daemon, mistyped: Path, who: str, how: str) -> None:
    # Nobody else's: another worker may run this test beside.
    sleeping = f"sleep 9{os.getpid()}.5"
    with as_who(who, daemon) as prefix:
        daemon.start(prefix=prefix)
        made = daemon.create(name="left")
        running = start(daemon, made, f"setsid {sleeping} & echo up; {sleeping}; true")
        printed(daemon, running, b"up")
        daemon.stop()
        assert len(find(sleeping)) >= 2
        if how == "another directory":
            status, words = stop_all(daemon, runtime=mistyped, prefix=prefix)
            assert str(daemon.runtime) in words
        else:
            start_record = next(daemon.state.rglob("start.json")).read_text()
            os.kill(int(start_record.split('"pid":')[1].split(",")[0]), signal.SIGSTOP)
            status, words = stop_all(daemon, prefix=prefix)
        assert status == 0, words
        assert find(sleeping) == []
        assert not mistyped.parent.exists()
        status, words = stop_all(daemon, prefix=prefix)
        assert status == 0
        assert "Nothing to end" in words
        eventually(lambda: not find(str(daemon.runtime)))
        daemon.start(prefix=prefix)
        ended = daemon.ok("GET", f"{executions(made)}/{running['id']}")
        assert (ended["status"], ended["error_code"]) == ("KILLED", "HOST_DRAINING")
        assert ended["stdout"] == "up\n"
        daemon.stop()
        assert stop_all(daemon, prefix=prefix)[0] == 0


def test_where_sandboxd_never_was_nothing_is_made(daemon: Daemon, mistyped: Path) -> None:
    state = daemon.state / "mistyped" / "deep"
    status, words = stop_all(daemon, state=state, runtime=mistyped)
    assert status == 0
    assert "nothing of sandboxd" in words
    assert str(state) in words
    assert not state.parent.exists()
    assert not mistyped.parent.exists()
    # Empty ones, as a service manager makes them.
    assert "nothing of sandboxd" in stop_all(daemon)[1]
    assert [*daemon.state.iterdir(), *daemon.runtime.iterdir()] == []


def test_a_refused_start_makes_nothing(daemon: Daemon, mistyped: Path) -> None:
    own = daemon.state, daemon.runtime
    (daemon.state / "file").touch()
    state = daemon.state / "sbx" / "deep"
    try:
        for runtime in (daemon.state / "file", daemon.runtime / ("x" * 100)):
            daemon.state, daemon.runtime = state, runtime
            assert refused(daemon)
            assert not state.parent.exists()
        if os.getuid() == 0:
            daemon.state, daemon.runtime = Path("/tmp/sbx-never/deep"), mistyped
            assert refused(daemon)
            assert not daemon.state.parent.exists()
            assert not mistyped.parent.exists()
    finally:
        daemon.state, daemon.runtime = own


def test_a_start_that_fails_late_takes_its_directories_back(daemon: Daemon, mistyped: Path) -> None:
    own = daemon.state, daemon.runtime
    daemon.state, daemon.runtime = daemon.state / "sbx", mistyped
    try:
        assert "ready file" in refused(daemon, SANDBOX_READY_FILE="/nonexistent/ready")
        assert not daemon.state.exists()
        assert not mistyped.parent.exists()
    finally:
        daemon.state, daemon.runtime = own


def test_a_start_beside_a_running_daemon_takes_its_own_back(daemon: Daemon) -> None:
    daemon.start()
    before = sorted(map(str, [*daemon.state.rglob("*"), *daemon.runtime.rglob("*")]))
    with unstarted(**SETTINGS) as second:
        own = second.state, second.runtime
        second.runtime = daemon.runtime
        assert "another sandboxd" in refused(second)
        assert list(own[0].iterdir()) == []
        second.state, second.runtime = daemon.state, own[1]
        assert "another sandboxd" in refused(second)
        assert list(own[1].iterdir()) == []
        second.state, second.runtime = own
    assert sorted(map(str, [*daemon.state.rglob("*"), *daemon.runtime.rglob("*")])) == before


def test_a_start_that_fails_leaves_an_earlier_daemon_s(daemon: Daemon, mistyped: Path) -> None:
    daemon.start()
    made = daemon.create()
    daemon.stop()
    own, daemon.runtime = daemon.runtime, mistyped
    try:
        refused(daemon, SANDBOX_READY_FILE="/nonexistent/ready")
        assert not mistyped.parent.exists()
    finally:
        daemon.runtime = own
    daemon.start()
    assert daemon.execute(made["id"], ["true"])["exit_code"] == 0


def refused(daemon: Daemon, **settings: str) -> str:
    status, words = run_daemon(daemon, **{**SETTINGS, **settings})
    assert status == 1, words
    assert "Traceback" not in words
    return words
