# SPDX-License-Identifier: Apache-2.0
"""The service as a host has it without the package: units rendered from this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import unmet
from tests.contract.probes import eventually
from tests.harness import ROOT, Daemon
from tests.system import host

UNITS = Path("/run/systemd/system")
# What SetUnitProperties leaves of a unit that has a file (org.freedesktop.systemd1(5)).
LIMITS = Path("/run/systemd/system.control/sandboxd.slice.d")
SERVICES = ("sandboxd.service", "sandboxd-spawner.service", "sandboxd-supervisor.service")
SLICES = ("sandboxd.slice", "sandboxd_daemon.slice")
GROUP = "sandboxd"
# An emulated machine starts a daemon in 10 to 20 seconds.
START_SECONDS = 120
WATCHDOG_SECONDS = 10


def run(*argv: str) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=START_SECONDS, cwd=ROOT)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


class Installed(Daemon):
    """Requests to the service, and what happens to its units."""

    def __init__(self) -> None:
        self.state, self.runtime = Path("/var/lib/sandboxd"), Path("/run/sandboxd")
        self.socket = str(self.runtime / "sandboxd.sock")
        self.log = Path("/nonexistent")

    def pid(self, unit: str) -> int:
        """Its main process; 0 while there is none."""
        return int(host.show(unit, "MainPID")["MainPID"])

    def await_another(self, unit: str, pid: int) -> None:
        """Return once another process than `pid` is active in the unit."""

        def is_new() -> bool:
            found = host.show(unit, "MainPID", "ActiveState")
            return found["ActiveState"] == "active" and int(found["MainPID"]) not in (0, pid)

        eventually(is_new, START_SECONDS)


def render(directory: Path) -> list[Path]:
    """The files as `sandboxctl render-units` writes them."""
    run(sys.executable, "-m", "sandboxd.ctl.main", "render-units", "--output", str(directory))
    return sorted(directory.iterdir())


@contextmanager
def installed(directory: Path, **environment: str) -> Iterator[Installed]:
    """The units below /run, the socket listening; at the end nothing is left but the group.

    environment: SANDBOX_* for the daemon. The first request starts it.
    """
    if host.show("sandboxd.service", "LoadState")["LoadState"] != "not-found":
        unmet("a host without the units of sandboxd")
    files = render(directory)
    units = [path for path in files if path.suffix in (".service", ".socket", ".slice")]
    drop_in = UNITS / "sandboxd.service.d"
    settings = [f"Environment={name}={value}\n" for name, value in environment.items()]
    try:
        for path in units:
            shutil.copy(path, UNITS)
        drop_in.mkdir()
        watchdog = f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}s\nTimeoutAbortSec=1s\n"
        (drop_in / "test.conf").write_text(watchdog + "".join(settings))
        run("systemd-sysusers", str(directory / "sandboxd.sysusers"))
        run("systemd-tmpfiles", "--create", str(directory / "sandboxd.tmpfiles"))
        run("systemctl", "daemon-reload")
        run("systemctl", "start", "sandboxd.socket")
        yield Installed()
    finally:
        run("systemctl", "stop", "sandboxd.socket", "sandboxd.service")
        subprocess.run(
            [sys.executable, "-m", "sandboxd", "--stop-all"], cwd=ROOT, check=True,
            env={**os.environ, **environment}, timeout=START_SECONDS, capture_output=True,
        )  # fmt: skip
        run("systemctl", "stop", *SERVICES, *SLICES)
        for path in units:
            (UNITS / path.name).unlink()
        for left in (drop_in, LIMITS, Path("/var/lib/sandboxd"), Path("/run/sandboxd")):
            shutil.rmtree(left, ignore_errors=True)
        run("systemctl", "daemon-reload")
