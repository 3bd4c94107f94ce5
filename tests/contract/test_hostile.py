# SPDX-License-Identifier: Apache-2.0
"""Commands and callers that know how sandboxd works and want a wrong end of it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import executions, path_of, printed, python, refused, start
from tests.harness import Daemon

as_root = pytest.mark.usefixtures("requires_root")


def test_last_words_above_the_cap_are_an_output_limit_every_time(
    daemon: Daemon, sandbox: Any
) -> None:
    """Whether the shim sees the end or the bytes first must not decide."""
    ends = Counter(
        daemon.execute(sandbox["id"], ["printf", "0123456789abcdef"], max_output_bytes=10)["status"]
        for _ in range(30)
    )
    assert set(ends) == {"OUTPUT_LIMIT"}


def test_a_user_namespace_of_its_own_cannot_be_made(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], ["unshare", "--user", "true"])
    assert (ran["status"], ran["exit_code"]) == ("EXITED", 1)
    assert "Operation not permitted" in ran["stderr"]


def test_a_signal_that_meets_the_end_loses_no_end(daemon: Daemon, sandbox: Any) -> None:
    """The main process may be gone when the order arrives."""

    def pester(_: int) -> str:
        running = start(daemon, sandbox, ["sleep", "0.05"])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            target = f"{path_of(running)}/kill"
            if daemon.request("POST", target, {"signal": "CONT"}).status != 200:
                break
        return str(daemon.wait(running)["status"])

    with ThreadPoolExecutor(8) as pool:
        ends = Counter(pool.map(pester, range(80)))
    assert set(ends) == {"EXITED"}


def test_two_large_environments_are_the_kernels_to_refuse(daemon: Daemon, create: Create) -> None:
    """Each fits by itself; escaped in JSON both together are over 8 MiB."""
    sandbox = create(env={f"V{number}": "é" * 50_000 for number in range(18)})
    body = {"argv": ["true", *["é" * 50_000] * 15]}
    refused(daemon.request("POST", executions(sandbox), body), 422, "EXECUTION_NOT_STARTED")


_KEEP_MAKING = """
import os, socket, sys
held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
held.bind("\\0" + sys.argv[1])
print("bound", flush=True)
directory = socket.recv_fds(held, 1, 1)[1][0]
print("got it", flush=True)
serial = 0
while True:
    serial += 1
    try:
        os.mkdir(f"x{serial}", dir_fd=directory)
    except OSError:
        pass
"""
_HAND_OVER = """
import os, socket, sys
os.mkdir("sub")
os.chmod("sub", 0o777)
os.chmod(".", 0o777)
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.connect("\\0" + sys.argv[1])
socket.send_fds(sender, [b"x"], [os.open("sub", os.O_RDONLY)])
"""


@as_root
def test_another_sandbox_with_a_directory_of_it_cannot_hold_up_a_release(
    daemon: Daemon, create: Create
) -> None:
    """An accomplice fills the directory while it is emptied."""
    name = f"sandboxd-test-{secrets.token_hex(8)}"
    # The host's abstract sockets, since no sandbox has a file or a network in common with another.
    victim, accomplice = create(network="host"), create(network="host")
    running = start(daemon, accomplice, python(_KEEP_MAKING, name))
    printed(daemon, running, b"bound")
    assert daemon.execute(victim["id"], python(_HAND_OVER, name))["exit_code"] == 0
    printed(daemon, running, b"got it")
    daemon.release(victim["id"])
    daemon.request("POST", f"{path_of(running)}/kill", {})


def _stop_shim(daemon: Daemon, execution: Any) -> int:
    records = daemon.state / "sandboxes" / execution["sandbox_id"] / "executions"
    pid: int = json.loads((records / execution["id"] / "start.json").read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_a_release_during_a_resume_stays_a_release(daemon: Daemon, create: Create) -> None:
    """Neither the resume nor a change that waited behind it brings the sandbox back."""
    sandbox = create()
    running = start(daemon, sandbox, ["sleep", "60"])
    target = f"/v1/sandboxes/{sandbox['id']}"
    daemon.ok("POST", f"{target}/suspend")
    pid = _stop_shim(daemon, running)
    with ThreadPoolExecutor(3) as pool:
        try:
            resumed = pool.submit(daemon.request, "POST", f"{target}/resume")
            time.sleep(0.3)
            changed = pool.submit(daemon.request, "PATCH", target, {"metadata": {"a": "b"}})
            time.sleep(0.3)
            released = pool.submit(daemon.request, "DELETE", target)
            time.sleep(0.3)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert resumed.result().json["state"] in ("releasing", "released")
    refused(changed.result(), 409, "SANDBOX_RELEASED")
    assert released.result().status == 204
