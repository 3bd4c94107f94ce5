# SPDX-License-Identifier: Apache-2.0
"""A daemon that systemd runs as a unit of its own, with a watchdog."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.contract.probes import eventually
from tests.harness import ROOT, Daemon
from tests.system import host

START_SECONDS = 120.0
WATCHDOG_SECONDS = 10


class Service(Daemon):
    """The harness' daemon, but started, stopped and started again by systemd."""

    def __init__(self, **environment: str) -> None:
        super().__init__(SANDBOX_CGROUP_MODE="required", **environment)
        self.unit = f"sbxtest-{self.state.name.rpartition('-')[2].replace('_', '0')}.service"

    def run(self) -> None:
        """Start the unit; returns once it is ready."""
        settings = [f"--setenv={name}={value}" for name, value in self.environment.items()]
        properties = (
            "Type=notify", "NotifyAccess=main", f"WatchdogSec={WATCHDOG_SECONDS}",
            "Restart=always", "RestartSec=100ms", "TimeoutAbortSec=5s",
            f"StandardOutput=append:{self.log}", f"StandardError=append:{self.log}",
        )  # fmt: skip
        subprocess.run(
            ["systemd-run", "--quiet", "--collect", f"--unit={self.unit}",
             *(f"--property={p}" for p in properties), f"--setenv=PYTHONPATH={ROOT}", *settings,
             "--", sys.executable, "-m", "sandboxd", "--socket", self.socket,
             "--state-dir", str(self.state), "--runtime-dir", str(self.runtime)],
            check=True, timeout=START_SECONDS,
        )  # fmt: skip

    def systemctl(self, verb: str) -> None:
        """A verb of systemctl for the unit; returns when it is done."""
        subprocess.run(["systemctl", verb, self.unit], check=True, timeout=START_SECONDS)

    @property
    def pid(self) -> int:
        """Its main process; 0 while there is none."""
        return int(host.show(self.unit, "MainPID")["MainPID"])

    def await_another(self, pid: int, seconds: float) -> None:
        """Return once another process than `pid` is active in the unit."""

        def is_new() -> bool:
            found = host.show(self.unit, "MainPID", "ActiveState")
            return found["ActiveState"] == "active" and int(found["MainPID"]) not in (0, pid)

        eventually(is_new, seconds)


@contextmanager
def running_service(**environment: str) -> Iterator[Service]:
    """A started service; nothing of it is left at the end."""
    service = Service(SANDBOX_MEMORY_LIMIT_BYTES="64M", **environment)
    try:
        service.run()
        yield service
        for sandbox in service.ok("GET", "/v1/sandboxes?limit=1000")["sandboxes"]:
            if sandbox["state"] != "released":
                service.release(sandbox["id"])
    finally:
        service.systemctl("stop")
        service.close()
