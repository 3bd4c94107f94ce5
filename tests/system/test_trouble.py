# SPDX-License-Identifier: Apache-2.0
"""The host in trouble: a bus that hangs, /run without room, a clock that jumps, units that
somebody stops. Each has its expected effect, and none of them loses what runs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.contract.probes import eventually, executions, path_of, printed, refused, start
from tests.harness import Daemon
from tests.system import host

STALL_SECONDS = 10.0
HOUR = 3600
COUNT = "n=0; while [ $n -lt 30 ]; do echo $n; n=$((n + 1)); sleep 0.1; done; exit 5"
WHOLE = "".join(f"{n}\n" for n in range(30))


@contextmanager
def stalled_bus() -> Iterator[None]:
    pid = int(host.show("dbus.service", "MainPID")["MainPID"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(300)
def test_a_bus_that_stalls_delays_and_breaks_nothing(daemon: Daemon, sandbox: Any) -> None:
    """Ten starts and a create wait for it; nothing half made is left."""
    counting = start(daemon, sandbox, COUNT)
    units = host.sandboxd_units()
    with ThreadPoolExecutor(12) as pool:
        with stalled_bus():
            began = time.monotonic()
            starts = [pool.submit(daemon.execute, sandbox["id"], f"echo {n}") for n in range(10)]
            create = pool.submit(daemon.create)
            # What needs no systemd is answered meanwhile.
            assert daemon.ok("GET", path_of(counting))["status"] in ("RUNNING", "EXITED")
            time.sleep(max(0.0, began + STALL_SECONDS - time.monotonic()))
        printed_texts = [one.result(120)["stdout"] for one in starts]
        daemon.release(create.result(120)["id"])
    assert printed_texts == [f"{n}\n" for n in range(10)]
    assert daemon.wait(counting)["stdout"] == WHOLE
    eventually(lambda: host.sandboxd_units() <= units)


@contextmanager
def filled(directory: str) -> Iterator[None]:
    """No page of a tmpfs is free: it is made as small as what is in it, which takes no memory."""
    found = os.statvfs(directory)
    size = found.f_blocks * found.f_frsize
    filler = Path(directory, "sbx-filler")
    _resize(directory, size - found.f_bavail * found.f_frsize + (64 << 10))
    try:
        with filler.open("wb", buffering=0) as file:
            page = bytes(found.f_frsize)
            with suppress(OSError):
                while file.write(page):
                    pass
        yield
    finally:
        filler.unlink()
        _resize(directory, size)


def _resize(directory: str, size_bytes: int) -> None:
    options = f"remount,size={size_bytes}"
    subprocess.run(["mount", "-o", options, directory], check=True, timeout=60)


@pytest.mark.timeout(300)
def test_without_room_in_run_starts_are_refused_and_ends_are_told(
    daemon: Daemon, sandbox: Any
) -> None:
    counting = start(daemon, sandbox, COUNT)
    asleep = start(daemon, sandbox, "echo up; exec sleep 300")
    printed(daemon, asleep, b"up")
    units = host.sandboxd_units()
    with filled("/run"):
        for target, body in (
            (executions(sandbox), {"argv": ["true"]}),
            (executions(sandbox), {"argv": ["true"]}),
            ("/v1/sandboxes", {"limits": {"memory_bytes": "32M"}}),
        ):
            answer = daemon.request("POST", target, body)
            # Whoever else gave a page back meanwhile has made room for a unit's file.
            if answer.status not in (200, 201):
                refused(answer, 503, "HOST_DISK_FULL")
        ended = daemon.wait(counting)
        assert (ended["status"], ended["stdout"]) == ("EXITED", WHOLE)
        assert daemon.ok("POST", f"{path_of(asleep)}/kill", {})["status"] == "KILLED"
    for made in daemon.ok("GET", "/v1/sandboxes?state=ready")["sandboxes"]:
        if made["unit"] not in units:
            daemon.release(made["id"])
    assert daemon.execute(sandbox["id"], ["echo", "on"])["stdout"] == "on\n"
    eventually(lambda: host.sandboxd_units() <= units)


@contextmanager
def clock_stepped(seconds: int) -> Iterator[None]:
    time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
    try:
        yield
    finally:
        time.clock_settime(time.CLOCK_REALTIME, time.time() - seconds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_step_of_the_clock_ends_nothing_and_holds_nothing_up(daemon: Daemon, step: int) -> None:
    limits = {"memory_bytes": "32M"}
    kept = daemon.create(limits=limits, timeout_seconds=1800, idle_timeout_seconds=1800)
    short = daemon.create(limits=limits, timeout_seconds=12)
    counting = start(daemon, kept, COUNT, timeout_seconds=60)
    in_time = start(daemon, kept, "exec sleep 300", timeout_seconds=6)
    began = time.monotonic()
    with clock_stepped(step):
        ended = daemon.wait(counting)
        assert (ended["status"], ended["stdout"]) == ("EXITED", WHOLE)
        assert 2 < ended["usage"]["wall_seconds"] < 60
        timed = daemon.wait(in_time)
        assert timed["status"] == "TIMED_OUT"
        assert 5 < timed["usage"]["wall_seconds"] < 60
        # The records of the next daemon count on, too.
        daemon.kill()
        daemon.start()
        target = f"/v1/sandboxes/{short['id']}"
        eventually(lambda: daemon.ok("GET", target)["state"] == "released", 60)
        assert time.monotonic() - began >= 12
        assert daemon.ok("GET", f"/v1/sandboxes/{kept['id']}")["state"] == "ready"
        assert daemon.ok("GET", path_of(counting))["exit_code"] == 5
    daemon.release(kept["id"])


@pytest.mark.timeout(300)
def test_a_slice_that_somebody_stops_is_found(daemon: Daemon) -> None:
    made = daemon.create(limits={"memory_bytes": "32M"})
    running = start(daemon, made, "exec sleep 300")
    subprocess.run(["systemctl", "stop", made["unit"]], check=True, timeout=60)
    target = f"/v1/sandboxes/{made['id']}"
    eventually(lambda: daemon.ok("GET", target)["state"] == "released", 30)
    assert daemon.wait(running)["status"] == "LOST"
    assert "its place is gone" in daemon.log.read_text()


@pytest.mark.timeout(300)
def test_a_scope_of_nobody_is_removed(daemon: Daemon, sandbox: Any) -> None:
    """As a start whose answer and whose clean-up were lost would leave one."""
    stem = sandbox["unit"].removesuffix(".slice").rpartition("-")[0].rpartition("-")[0]
    unit = f"{stem}-{sandbox['id']}-aaaaaaaaaaaa.scope"
    left = subprocess.Popen(
        ["systemd-run", "--scope", "--quiet", "--collect", f"--unit={unit}",
         f"--slice={sandbox['unit']}", "--", "sleep", "300"],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        # It may be gone before anybody lists it.
        eventually(lambda: f"Removed {unit}" in daemon.log.read_text(), 60)
        left.wait(60)
        eventually(lambda: unit not in host.sandboxd_units(), 60)
    finally:
        left.kill()
        left.wait()
    assert daemon.execute(sandbox["id"], ["echo", "on"])["stdout"] == "on\n"
