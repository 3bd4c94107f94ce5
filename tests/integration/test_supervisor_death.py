# SPDX-License-Identifier: Apache-2.0
"""The supervisor may be killed at any moment: limits are back at once, nobody stays stopped, no
verdict is wrong."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from tests.contract.probes import eventually, path_of, python, start, uid_inside
from tests.contract.test_helpers_die import spawner_pid
from tests.contract.test_memory import BOMBS, GROW, is_oom
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.integration.supervisor import SPIN, states, supervised, supervisor_pid

pytestmark = pytest.mark.usefixtures("requires_root")
daemon = daemon_fixture(supervised, scope="function")


def kill_supervisor(daemon: Daemon) -> int:
    """SIGKILL it; returns the next one's number once it is there."""
    pid = eventually(lambda: supervisor_pid(daemon))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def successor() -> int | None:
        found = supervisor_pid(daemon)
        return found if found != pid else None

    found = eventually(successor)
    assert found is not None
    return found


@pytest.mark.timeout(180)
def test_twenty_deaths_under_load(daemon: Daemon) -> None:
    spinner = daemon.create(limits={"cpus": 0.2, "memory_bytes": "128M"})
    uid = uid_inside(daemon, spinner)
    spinning = start(daemon, spinner, SPIN)
    frozen = daemon.create(limits={"memory_bytes": "128M"})
    frozen_uid = uid_inside(daemon, frozen)
    sleeping = start(daemon, frozen, ["sleep", "300"])
    daemon.ok("POST", f"/v1/sandboxes/{frozen['id']}/suspend")
    eater = daemon.create(limits={"memory_bytes": "256M"})
    for _ in range(20):
        kill_supervisor(daemon)
        eating = start(daemon, eater, python(GROW + BOMBS["twenty processes"]))
        assert is_oom(daemon.wait(eating), "sandbox")
        ran = daemon.execute(eater["id"], "kill -KILL $$")
        assert (ran["status"], ran["signal"]) == ("SIGNALED", 9)
    # Stopped now and then to hold the quota, but never for ever; the suspended one always.
    eventually(lambda: "T" not in states(uid))
    eventually(lambda: "T" in states(uid))
    eventually(lambda: "T" not in states(uid))
    assert set(states(frozen_uid)) == {"T"}
    daemon.ok("POST", f"/v1/sandboxes/{frozen['id']}/resume")
    eventually(lambda: "T" not in states(frozen_uid))
    ended = daemon.ok("POST", f"{path_of(spinning)}/kill")
    assert ended["status"] == "KILLED"
    assert ended["usage"]["cpu_throttled_seconds"] > 0
    assert daemon.ok("POST", f"{path_of(sleeping)}/kill")["status"] == "KILLED"


def test_limits_are_back_within_a_second(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "256M"})
    code = "import os, time\nx = bytearray(100 << 20)\nx[::4096] = b'x' * len(x[::4096])\n"
    code += "open('in', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.001)\n"
    code += GROW + BOMBS["one process"]
    running = start(daemon, made, python(code))
    home = daemon.state / "sandboxes" / made["id"] / "home"
    eventually((home / "in").exists)
    kill_supervisor(daemon)
    began = time.monotonic()
    (home / "go").touch()
    assert is_oom(daemon.wait(running), "sandbox")
    assert time.monotonic() - began < 5


def test_a_stopped_one_goes_on_when_nobody_comes_after(daemon: Daemon) -> None:
    """The spawner keeps the supervisor; both die at once, and the daemon notices."""
    made = daemon.create(limits={"cpus": 0.1, "memory_bytes": "128M"})
    uid = uid_inside(daemon, made)
    running: Any = start(daemon, made, SPIN)
    eventually(lambda: "T" in states(uid))
    pid = supervisor_pid(daemon)
    assert pid is not None
    for number in (spawner_pid(daemon), pid):
        os.kill(number, signal.SIGKILL)
    eventually(lambda: supervisor_pid(daemon), 20)
    eventually(lambda: "T" not in states(uid))
    eventually(lambda: "T" in states(uid))
    assert daemon.ok("POST", f"{path_of(running)}/kill")["status"] == "KILLED"


def test_a_stopped_supervisor_is_replaced(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "256M"})
    pid = supervisor_pid(daemon)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    eating = start(daemon, made, python(GROW + BOMBS["one process"]), timeout_seconds=60)
    assert is_oom(daemon.wait(eating), "sandbox")
    eventually(lambda: supervisor_pid(daemon) not in (None, pid), 20)


def test_a_restarted_daemon_s_sandboxes_are_still_held(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "256M"})
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    running = start(daemon, made, python(code + GROW + BOMBS["one process"]))
    pid = supervisor_pid(daemon)
    assert daemon.stop() == 0
    daemon.start()
    assert supervisor_pid(daemon) == pid
    (daemon.state / "sandboxes" / made["id"] / "home" / "go").touch()
    assert is_oom(daemon.wait(running), "sandbox")
