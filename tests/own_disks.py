# SPDX-License-Identifier: Apache-2.0
"""What a disk of a sandbox's own has to do; run natively and in the machine."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import requires_program, unmet
from tests.contract.probes import eventually, refused
from tests.contract.test_files import files, get, put
from tests.disk_limits import LIMIT, MIB
from tests.file_systems import run
from tests.harness import Daemon, running_daemon


@contextmanager
def daemon_with_images(**settings: str) -> Iterator[Daemon]:
    """A daemon that gives each sandbox a disk of its own."""
    requires_program("mke2fs")
    _need_loop_devices()
    with running_daemon(
        SANDBOX_DISK_MEANS="image", SANDBOX_MEMORY_LIMIT_BYTES="96M", **settings
    ) as made:
        yield made


def _need_loop_devices() -> None:
    with tempfile.NamedTemporaryFile() as image:
        image.truncate(MIB)
        done = subprocess.run(
            ["losetup", "--find", "--show", image.name], capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            unmet(f"loop devices ({done.stderr.strip()})")
        run("losetup", "--detach", done.stdout.strip())


def image_of(daemon: Daemon, sandbox: Any) -> Path:
    """The file its disk is in."""
    return Path(daemon.state, "sandboxes", sandbox["id"], "disk.img")


def is_attached(image: Path) -> bool:
    """Whether a loop device has the file, be it deleted."""
    return str(image) in run("losetup", "--list", "--noheadings", "--output", "BACK-FILE")


def is_mounted(sandbox_id: str) -> bool:
    """Whether this process' namespace has its disk."""
    return f"/disks/{sandbox_id} " in Path("/proc/self/mountinfo").read_text()


def check_gone_after_release(daemon: Daemon, **body: Any) -> None:
    """Nothing of a released sandbox's disk stays, whoever else runs."""
    sandbox = daemon.create(limits={"disk_bytes": LIMIT}, **body)
    other = daemon.create(limits={"disk_bytes": LIMIT}, **body)
    try:
        image = image_of(daemon, sandbox)
        assert sandbox["enforcement"]["disk_bytes"]["by"] == "kernel"
        assert is_attached(image)
        # Sparse: what it may hold is not taken before.
        assert image.stat().st_blocks * 512 < LIMIT // 4
        put(daemon, sandbox, "mine", bytes(MIB))
        # Each starts while the sandbox' disk is mounted.
        running = daemon.execute(other["id"], "echo there; sleep 600", wait=False)
        output = f"/v1/sandboxes/{other['id']}/executions/{running['id']}/output"
        eventually(lambda: daemon.request("GET", output).body)
        daemon.execute(sandbox["id"], "sleep 600", wait=False)
        daemon.release(sandbox["id"])
        eventually(lambda: not is_attached(image))
        assert not is_mounted(sandbox["id"])
        assert not image.exists()
        assert daemon.ok("GET", output.removesuffix("/output"))["status"] == "RUNNING"
    finally:
        daemon.release(other["id"])


def check_own_disk_alone_is_seen(daemon: Daemon, **body: Any) -> None:
    """A command finds no other sandbox's disk, its own by the paths it was told."""
    sandbox = daemon.create(limits={"disk_bytes": LIMIT}, **body)
    other = daemon.create(limits={"disk_bytes": LIMIT}, **body)
    try:
        found = daemon.execute(
            sandbox["id"],
            "cat /proc/self/mountinfo; cd && echo x > f && echo y > $TMPDIR/f && ls /tmp/f",
        )
        assert found["exit_code"] == 0, found["stderr"]
        assert other["id"] not in found["stdout"]
        assert get(daemon, sandbox, "f") == b"x\n"
    finally:
        daemon.release(sandbox["id"])
        daemon.release(other["id"])


def check_next_daemon(daemon: Daemon) -> None:
    """Disks outlive the daemon, are mounted again where they are not, and held as before."""
    # Without a root of its own, which would go with the host and not with this test's umount.
    sandbox = daemon.create(limits={"disk_bytes": LIMIT}, isolation="basic")
    put(daemon, sandbox, "mine", b"before")
    running = daemon.execute(sandbox["id"], "sleep 2; cat mine; echo after > f", wait=False)
    daemon.kill()
    daemon.start()
    assert daemon.wait(running)["stdout"] == "before"
    assert get(daemon, sandbox, "f") == b"after\n"
    daemon.stop()
    # As after a start of the host.
    run("umount", str(daemon.runtime / "disks" / sandbox["id"]))
    eventually(lambda: not is_attached(image_of(daemon, sandbox)))
    daemon.start()
    assert get(daemon, sandbox, "mine") == b"before"
    answer = daemon.request("PUT", files(sandbox, "more"), bytes(LIMIT))
    refused(answer, 507, "SANDBOX_DISK_QUOTA_EXCEEDED")
    # One that no record knows goes at the next start.
    daemon.kill()
    (daemon.state / "sandboxes" / sandbox["id"] / "sandbox.json").unlink()
    daemon.start()
    assert not is_mounted(sandbox["id"])
    eventually(lambda: not is_attached(image_of(daemon, sandbox)))
    assert not image_of(daemon, sandbox).exists()


def check_limit_is_lowered(daemon: Daemon) -> None:
    """A lower limit holds at once; one below what is in use is refused."""
    sandbox = daemon.create(limits={"disk_bytes": LIMIT})
    target = f"/v1/sandboxes/{sandbox['id']}"
    put(daemon, sandbox, "a", bytes(6 * MIB))
    answer = daemon.request("PATCH", target, {"limits": {"disk_bytes": 4 * MIB}})
    refused(answer, 409, "LIMIT_BELOW_USAGE")
    assert 6 * MIB <= answer.json["error"]["details"]["current"] < 7 * MIB
    assert daemon.ok("GET", target)["limits"]["disk_bytes"] == LIMIT
    daemon.ok("PATCH", target, {"limits": {"disk_bytes": 8 * MIB}})
    answer = daemon.request("PUT", files(sandbox, "b"), bytes(3 * MIB))
    refused(answer, 507, "SANDBOX_DISK_QUOTA_EXCEEDED")
    assert daemon.ok("GET", f"{target}/metrics")["disk"]["used_bytes"] < 8 * MIB
    daemon.release(sandbox["id"])
