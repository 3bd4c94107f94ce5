# SPDX-License-Identifier: Apache-2.0
"""Work outlives its daemon: the next one tells every execution's true end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.probes import eventually, find, output, path_of, printed, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

WAYS = ("stop", "kill")
# Prints 0 to 59 over some seconds, whatever happens to the daemon.
COUNT = "n=0; while [ $n -lt 60 ]; do echo $n; n=$((n + 1)); sleep 0.03; done; exit 5"
WHOLE = "".join(f"{n}\n" for n in range(60))
daemon = daemon_fixture(scope="function", SANDBOX_MEMORY_LIMIT_BYTES="64M")


def go(daemon: Daemon, way: str) -> None:
    if way == "stop":
        assert daemon.stop() == 0
    else:
        daemon.kill()


def test_the_history_goes_on(daemon: Daemon) -> None:
    def told() -> Any:
        answer = daemon.ok("GET", "/v1/history")
        return answer["known_since"], [(o["ended"], o["refused"]) for o in answer["owners"]]

    box = daemon.create(name="counted")
    daemon.execute("counted", "exit 3")
    assert daemon.request("GET", "/v1/sandboxes/nosuch").status == 404
    before = told()
    assert before[1][0][0]["EXITED"] >= 1
    assert before[1][0][1]["SANDBOX_NOT_FOUND"] >= 1
    for end in (daemon.stop, daemon.kill):
        end()
        daemon.start()
        assert told() == before
    daemon.release(box["id"])


@pytest.mark.parametrize("way", WAYS)
def test_the_next_daemon_tells_every_true_end(daemon: Daemon, way: str) -> None:
    made = daemon.create(name="kept", metadata={"a": "b"})
    before = daemon.execute(made["id"], "echo before; exit 3")
    counting = start(daemon, made, COUNT)
    short = start(daemon, made, "echo short; sleep 0.2071; exit 7")
    by_itself = start(daemon, made, "sleep 0.2071; kill -SEGV $$")
    in_time = start(daemon, made, "echo partial; sleep 96300", timeout_seconds=0.5)
    capped = start(daemon, made, "sleep 0.2071; yes", max_output_bytes=1000)
    leaving = start(daemon, made, "sleep 96300 & sleep 0.2071; exit 0")
    long = start(daemon, made, "echo up; sleep 97531 & wait")
    for running, text in ((counting, b"0\n"), (short, b"short"), (long, b"up")):
        printed(daemon, running, text)
    go(daemon, way)
    # All of it goes on, and ends, with nobody there.
    assert find("sleep 97531")
    eventually(lambda: not find("sleep 96300"))
    daemon.start()
    assert daemon.ok("GET", f"/v1/sandboxes/{made['id']}")["metadata"] == {"a": "b"}
    assert daemon.ok("GET", "/v1/sandboxes/kept")["state"] == "ready"
    assert daemon.ok("GET", path_of(before)) == before
    ends = {
        "counting": (counting, "EXITED", 5, None, None),
        "short": (short, "EXITED", 7, None, None),
        "by itself": (by_itself, "SIGNALED", None, 11, None),
        "in time": (in_time, "TIMED_OUT", None, 9, "SANDBOX_TIMEOUT"),
        "capped": (capped, "OUTPUT_LIMIT", None, 9, "SANDBOX_OUTPUT_LIMIT_EXCEEDED"),
        "leaving": (leaving, "EXITED", 0, None, None),
    }
    for name, (running, status, exit_code, number, code) in ends.items():
        ended = daemon.wait(running)
        assert (name, ended["status"], ended["error_code"]) == (name, status, code)
        assert (name, ended["exit_code"]) == (name, exit_code)
        assert number in (9, ended["signal"])
    assert daemon.wait(counting)["stdout"] == WHOLE
    assert daemon.wait(short)["stdout"] == "short\n"
    assert daemon.wait(in_time)["stdout"] == "partial\n"
    assert daemon.wait(capped)["stdout"] == ("y\n" * 500)
    assert daemon.wait(leaving)["leftovers_killed"] == 1
    assert daemon.ok("GET", path_of(long))["status"] == "RUNNING"
    killed = daemon.wait(daemon.ok("POST", f"{path_of(long)}/kill"))
    assert (killed["status"], killed["error_code"]) == ("KILLED", "KILLED_BY_CALLER")
    assert killed["stdout"] == "up\n"
    assert find("sleep 97531") == []
    assert daemon.execute("kept", ["echo", "new"])["stdout"] == "new\n"


@pytest.mark.parametrize("way", WAYS)
def test_a_suspended_sandbox_stays_suspended(daemon: Daemon, way: str) -> None:
    made = daemon.create()
    running = start(daemon, made, COUNT, timeout_seconds=5)
    printed(daemon, running, b"3\n")
    daemon.ok("POST", f"/v1/sandboxes/{made['id']}/suspend")
    go(daemon, way)
    daemon.start()
    assert daemon.ok("GET", f"/v1/sandboxes/{made['id']}")["state"] == "suspended"
    size = len(output(daemon, running))
    still = daemon.ok("GET", f"{path_of(running)}?wait=1")
    assert (still["status"], len(output(daemon, running))) == ("RUNNING", size)
    daemon.ok("POST", f"/v1/sandboxes/{made['id']}/resume")
    ended = daemon.wait(running)
    assert (ended["status"], ended["exit_code"], ended["stdout"]) == ("EXITED", 5, WHOLE)


def test_promises_hold_over_a_restart(daemon: Daemon) -> None:
    """Memory, names, limits and released records; a run goes on to release its sandbox."""
    made = daemon.create(name="named", limits={"memory_bytes": "48M"})
    gone = daemon.create()
    ran = daemon.execute(gone["id"], ["echo", "kept"])
    daemon.release(gone["id"])
    run = daemon.ok("POST", "/v1/run", {"command": "sleep 0.2071; echo ran", "wait": False})
    asleep = daemon.ok("POST", "/v1/run", {"argv": ["sleep", "96420"], "wait": False})
    capacity = daemon.ok("GET", "/v1/host")["capacity"]["committed_bytes"]
    go(daemon, "kill")
    eventually(lambda: not find("sleep 0.2071"))
    daemon.start()
    assert daemon.ok("GET", "/v1/sandboxes/named")["limits"] == made["limits"]
    assert daemon.request("POST", "/v1/sandboxes", {"name": "named"}).code == "NAME_IN_USE"
    assert daemon.ok("GET", path_of(ran))["stdout"] == "kept\n"
    assert daemon.wait(run)["stdout"] == "ran\n"
    state = f"/v1/sandboxes/{run['sandbox_id']}"
    eventually(lambda: daemon.ok("GET", state)["state"] == "released")
    # Without the run that ended.
    committed = daemon.ok("GET", "/v1/host")["capacity"]["committed_bytes"]
    assert committed == capacity - (64 << 20)
    assert find("sleep 96420")
    daemon.release(asleep["sandbox_id"])
    assert find("sleep 96420") == []


def test_a_restart_in_the_middle_of_requests_leaves_nothing_half_made(daemon: Daemon) -> None:
    """Killed with requests under way: what they began is either whole or gone."""
    made = daemon.create()

    def ask() -> None:
        try:
            while True:
                daemon.request("POST", "/v1/run", {"argv": ["true"]}, timeout=20)
        except OSError:
            return

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(daemon.ok("GET", "/v1/executions")["executions"]) > 8)
    daemon.kill()
    for thread in threads:
        thread.join(30)
    daemon.start()

    def states() -> list[str]:
        return sorted(one["state"] for one in daemon.ok("GET", "/v1/sandboxes")["sandboxes"])

    eventually(lambda: set(states()) == {"ready", "released"} and states().count("ready") == 1)
    for one in daemon.ok("GET", "/v1/executions?limit=1000")["executions"]:
        ended = daemon.wait(one)
        assert ended["status"] == "EXITED" or ended["started_at"] is None, ended
    assert daemon.execute(made["id"], ["true"])["exit_code"] == 0
