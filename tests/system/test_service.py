# SPDX-License-Identifier: Apache-2.0
"""The daemon as a unit: restarted by an admin, by the watchdog, after a crash; work goes on."""

from __future__ import annotations

import http.client
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.probes import ENDED, path_of, printed, start
from tests.harness import Daemon
from tests.system.service import WATCHDOG_SECONDS, Service, running_service

COUNT = "n=0; while [ $n -lt 40 ]; do echo $n; n=$((n + 1)); sleep 0.1; done; exit 5"
WHOLE = "".join(f"{n}\n" for n in range(40))


@pytest.fixture
def service(requires_systemd: None) -> Iterator[Service]:
    with running_service() as running:
        yield running


class Waiter(threading.Thread):
    """A client that waits for an end, and comes again when the daemon goes away."""

    def __init__(self, daemon: Daemon, execution: Any) -> None:
        super().__init__()
        self._daemon = daemon
        self._target = f"{path_of(execution)}?wait=60"
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        while self.answer is None or self.answer["status"] not in ENDED:
            try:
                answer = self._daemon.request("GET", self._target)
            except (OSError, http.client.HTTPException):
                continue
            if answer.status == 200:
                self.answer = answer.json

    def end(self) -> Any:
        self.join(120)
        assert not self.is_alive()
        return self.answer


def restart(service: Service, way: str) -> None:
    pid = service.pid
    if way == "restart":
        service.systemctl("restart")
    elif way == "hang":
        os.kill(pid, signal.SIGSTOP)
    else:
        os.kill(pid, signal.SIGKILL)
    service.await_another(pid, WATCHDOG_SECONDS + 60)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["restart", "crash", "hang"])
def test_work_does_not_notice(service: Service, way: str) -> None:
    made = service.create(name="kept")
    counting = start(service, made, COUNT)
    asleep = start(service, made, "echo up; exec sleep 300")
    in_time = start(service, made, "echo partial; exec sleep 300", timeout_seconds=3)
    for running, text in ((counting, b"0\n"), (asleep, b"up"), (in_time, b"partial")):
        printed(service, running, text)
    waiters = [Waiter(service, running) for running in (counting, in_time)]
    restart(service, way)
    counted, timed = (waiter.end() for waiter in waiters)
    assert (counted["status"], counted["exit_code"]) == ("EXITED", 5)
    assert counted["stdout"] == WHOLE
    assert (timed["status"], timed["stdout"]) == ("TIMED_OUT", "partial\n")
    assert service.ok("GET", path_of(asleep))["status"] == "RUNNING"
    ended = service.wait(service.ok("POST", f"{path_of(asleep)}/kill", {}))
    assert (ended["status"], ended["error_code"]) == ("KILLED", "KILLED_BY_CALLER")
    assert service.execute("kept", ["echo", "on"])["stdout"] == "on\n"
