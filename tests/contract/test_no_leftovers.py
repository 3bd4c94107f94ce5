# SPDX-License-Identifier: Apache-2.0
"""After release nothing of a sandbox is left on the host but its record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.contract.probes import executions, printed, processes_of, python, start, uid_inside
from tests.harness import Daemon

pytestmark = pytest.mark.usefixtures("requires_root")

BUSY = """
import os, time
for n in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(600)
    os.wait()
os.makedirs("a/b/c")
os.symlink("/etc", "link")
os.mkfifo("fifo")
open("a/file", "w").write("x")
os.chmod("a/b", 0)
os.chmod("a", 0o500)
open("/tmp/file", "w").write("x")
print("ready", flush=True)
time.sleep(600)
"""


def mounts_of(text: str) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if text in line]


def owned_by(uid: int, *tops: Path) -> list[str]:
    found = []
    for top in tops:
        for base, directories, files in os.walk(top):
            for name in (*directories, *files):
                path = os.path.join(base, name)
                if os.lstat(path).st_uid == uid:
                    found.append(path)
    return found


def names_with(text: str, *tops: Path) -> list[str]:
    return [str(path) for top in tops for path in top.rglob(f"*{text}*")]


def test_nothing_of_a_busy_sandbox_is_left(daemon: Daemon, scheme: str) -> None:
    made = daemon.create()
    uid = uid_inside(daemon, made)
    home = daemon.execute(made["id"], 'echo "$HOME"')["stdout"].strip()
    running = start(daemon, made, python(BUSY))
    printed(daemon, running, b"ready")
    assert len(processes_of(uid)) == 6
    tops = (daemon.state, daemon.runtime, Path("/tmp"), Path("/dev/shm"))
    assert owned_by(uid, *tops)
    daemon.release(made["id"])
    assert processes_of(uid) == []
    assert not os.path.exists(home)
    assert owned_by(uid, *tops) == []
    assert mounts_of(made["id"]) == []
    assert names_with(made["id"], daemon.runtime) == []
    if scheme == "systemd":
        # The last component alone: a slice's directory lies within its bucket's.
        assert names_with(made["id"], Path("/sys/fs/cgroup")) == []
    record = daemon.ok("GET", f"{executions(made)}/{running['id']}")
    assert record["error_code"] == "SANDBOX_RELEASED"


def test_the_daemon_is_as_before_after_many_sandboxes(daemon: Daemon) -> None:
    """Descriptors, threads and processes of the daemon and its helpers."""

    def counts() -> tuple[int, int, int]:
        assert daemon.process is not None
        process = Path(f"/proc/{daemon.process.pid}")
        mine = [pid for pid in os.listdir("/proc") if pid.isdigit() and is_ours(pid)]
        return len(os.listdir(process / "fd")), len(os.listdir(process / "task")), len(mine)

    def is_ours(pid: str) -> bool:
        try:
            return str(daemon.runtime).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def use() -> Any:
        made = daemon.create()
        daemon.execute(made["id"], "sleep 30 & true")
        daemon.execute(made["id"], ["sleep", "30"], timeout_seconds=0.05)
        assert daemon.request("POST", executions(made), {"argv": ["no-such"]}).status == 422
        daemon.release(made["id"])

    use()
    before = counts()
    for _ in range(6):
        use()
    after = counts()
    # A connection or a pooled thread may come and go; one of each sandbox may not.
    assert after[0] <= before[0] + 4
    assert after[1] <= before[1] + 4
    assert after[2] == before[2]


def test_commands_that_are_not_there_leave_nothing(daemon: Daemon, sandbox: Any) -> None:
    def files() -> set[str]:
        tops = (daemon.state, daemon.runtime)
        return {path for top in tops for path in names_with("", top) if sandbox["id"] in path}

    daemon.request("POST", executions(sandbox), {"argv": ["no-such"]})
    before = files()
    for _ in range(20):
        daemon.request("POST", executions(sandbox), {"argv": ["no-such"]})
    assert files() == before
    assert processes_of(uid_inside(daemon, sandbox)) == []


def test_a_uid_is_free_of_processes_before_it_comes_again(daemon: Daemon) -> None:
    for _ in range(5):
        made = daemon.create()
        uid = uid_inside(daemon, made)
        daemon.execute(made["id"], "setsid sleep 600 & true")
        daemon.release(made["id"])
        assert processes_of(uid) == []
