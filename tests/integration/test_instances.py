# SPDX-License-Identifier: Apache-2.0
"""Several daemons on one host, and the directories that a daemon takes or refuses."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.contract.probes import (
    eventually,
    find,
    path_of,
    printed,
    start,
    uid_inside,
)
from tests.harness import running_daemon
from tests.integration.process import refusal, run_daemon, unstarted

SETTINGS = {"SANDBOX_MEMORY_LIMIT_BYTES": "64M"}


def test_two_daemons_never_touch_each_other_s_work() -> None:
    with running_daemon(**SETTINGS) as one, running_daemon(**SETTINGS) as two:
        mine, other = one.create(name="same"), two.create(name="same")
        if os.getuid() == 0:
            uids = [uid_inside(one, mine), uid_inside(two, other)]
            uids += [uid_inside(daemon, daemon.create()) for daemon in (one, two)]
            assert len(set(uids)) == 4
        running = start(one, mine, "echo up; sleep 95310 & wait")
        printed(one, running, b"up")
        listed = [sandbox["id"] for sandbox in two.ok("GET", "/v1/sandboxes")["sandboxes"]]
        assert other["id"] in listed
        assert mine["id"] not in listed
        assert two.request("GET", f"/v1/sandboxes/{mine['id']}").code == "SANDBOX_NOT_FOUND"
        # Neither the other's release, nor its crash and restart, nor its end reaches the first.
        two.release(other["id"])
        two.kill()
        two.start()
        assert two.stop() == 0
        assert run_daemon(two, "--stop-all")[0] == 0
        assert find("sleep 95310")
        assert one.ok("GET", path_of(running))["status"] == "RUNNING"
        assert one.execute("same", ["echo", "on"])["stdout"] == "on\n"


def test_a_state_directory_in_use_is_refused() -> None:
    with running_daemon(**SETTINGS) as first, unstarted() as second:
        made = first.create()
        own = second.state
        second.state = first.state
        try:
            for more in ((), ("--stop-all",)):
                status, words = run_daemon(second, *more)
                assert status != 0
                assert str(first.state) in words
                assert "Traceback" not in words
        finally:
            second.state = own
        assert first.execute(made["id"], ["true"])["exit_code"] == 0


def test_a_runtime_directory_in_use_is_refused() -> None:
    with running_daemon(**SETTINGS) as first, unstarted() as second:
        made = first.create()
        before = sorted(map(str, first.runtime.rglob("*")))
        own = second.runtime
        second.runtime = first.runtime
        try:
            for more in ((), ("--stop-all",)):
                status, words = run_daemon(second, *more)
                assert status != 0
                assert str(first.runtime) in words
                assert "Traceback" not in words
        finally:
            second.runtime = own
        assert sorted(map(str, first.runtime.rglob("*"))) == before
        assert first.execute(made["id"], ["true"])["exit_code"] == 0


def test_a_socket_in_use_is_refused_with_who_named_it() -> None:
    with running_daemon(**SETTINGS) as first, unstarted() as second:
        for named_by, settings in (
            ("--socket", {}), ("SANDBOXD_SOCKET", {"SANDBOXD_SOCKET": first.socket}),
        ):  # fmt: skip
            status, words = run_daemon(second, "--socket", first.socket, **settings)
            assert status == 1
            assert f"cannot listen on {first.socket}: another process does" in words
            assert f"the path is that of {named_by}" in words
        assert first.ok("GET", "/v1/sandboxes")["sandboxes"] == []


@pytest.mark.usefixtures("requires_root")
def test_a_state_directory_that_sandboxes_could_not_see_is_refused() -> None:
    """A sandbox has a /tmp of its own, so its home cannot lie below the host's."""
    with unstarted() as daemon:
        own = daemon.state
        for parent in ("/tmp", "/var/tmp", "/dev/shm"):
            with tempfile.TemporaryDirectory(dir=parent) as inside:
                Path(inside).chmod(0o711)
                daemon.state = Path(inside, "state")
                try:
                    assert parent in refusal(daemon)
                finally:
                    daemon.state = own


@pytest.mark.usefixtures("requires_root")
def test_a_state_directory_behind_a_closed_one_is_refused() -> None:
    with unstarted() as daemon:
        own = daemon.state
        daemon.state = own / "closed" / "state"
        daemon.state.parent.mkdir(mode=0o700)
        try:
            assert str(own / "closed") in refusal(daemon)
        finally:
            daemon.state = own


def test_a_runtime_directory_too_long_for_sockets_is_refused() -> None:
    with unstarted() as daemon:
        own = daemon.runtime
        daemon.runtime = own / ("x" * 100)
        try:
            assert "too long" in refusal(daemon)
        finally:
            daemon.runtime = own


def test_a_stale_socket_is_replaced_and_a_live_one_is_not() -> None:
    with running_daemon(**SETTINGS) as first:
        first.kill()
        assert os.path.exists(first.socket)
        first.start()
        assert first.ok("GET", "/healthz")["status"] == "ok"
        with unstarted() as second:
            own = second.socket
            second.socket = first.socket
            try:
                status, words = run_daemon(second)
            finally:
                second.socket = own
            assert status != 0
            assert first.socket in words
            assert "Traceback" not in words
        assert first.ok("GET", "/healthz")["status"] == "ok"


def test_the_socket_is_its_owner_s_and_nothing_is_left_in_the_end() -> None:
    with unstarted(**SETTINGS) as daemon:
        daemon.start()
        assert os.stat(daemon.socket).st_mode & 0o007 == 0
        made = daemon.create()
        daemon.execute(made["id"], ["true"])
        assert daemon.stop() == 0
        assert not os.path.exists(daemon.socket)
        assert run_daemon(daemon, "--stop-all")[0] == 0
        eventually(lambda: not [pid for pid in find(str(daemon.runtime)) if pid != os.getpid()])
