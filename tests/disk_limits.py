# SPDX-License-Identifier: Apache-2.0
"""What a disk limit has to do on every kind of file system; run natively and in the machine."""

from __future__ import annotations

from typing import Any

from tests.contract.probes import eventually, python, refused
from tests.contract.test_files import files, get, listed, put
from tests.file_systems import du_bytes
from tests.harness import Daemon

MIB = 1 << 20
LIMIT = 24 * MIB
# Many files, no faster than 30 MiB/s, and no faster than the quickest look.
FILL = """
import os, sys, time
for number in range(400):
    try:
        with open(f"{sys.argv[1]}/f{number}", "wb") as file:
            file.write(bytes(1 << 20))
    except OSError as exc:
        sys.exit(f"errno {exc.errno}")
    time.sleep(0.03)
"""
# How far a program at that speed may get before it is found and ended.
SLACK = 48 * MIB


def check_fill_and_recover(daemon: Daemon, *, held_by: str, where: str, **body: Any) -> None:
    """A program fills up home or /tmp and is stopped; then deleting works, then everything."""
    sandbox = daemon.create(limits={"disk_bytes": LIMIT}, **body)
    try:
        assert sandbox["enforcement"]["disk_bytes"]["by"] == held_by
        put(daemon, sandbox, "mine", b"before")
        ended = daemon.execute(sandbox["id"], python(FILL, where), timeout_seconds=60)
        if held_by == "kernel":
            assert (ended["status"], ended["exit_code"]) == ("EXITED", 1), ended
            # EDQUOT, and of a disk of its own ENOSPC
            assert ended["stderr"] in ("errno 122\n", "errno 28\n")
            assert ended["error_code"] == "SANDBOX_DISK_QUOTA_EXCEEDED"
            # The staging directory itself is root's.
            assert du_bytes(daemon, sandbox["id"]) <= LIMIT + 4096
        else:
            assert ended["status"] == "DISK_QUOTA_EXCEEDED", ended
            assert ended["error_code"] == "SANDBOX_DISK_QUOTA_EXCEEDED"
            assert ended["limit_owner"] == "sandbox"
            assert LIMIT < du_bytes(daemon, sandbox["id"]) <= LIMIT + SLACK
        _check_full(daemon, sandbox)
        # Deleting works from inside although it is full, and through the API.
        swept = daemon.execute(sandbox["id"], f"rm -f {where}/f*; echo swept")
        assert (swept["status"], swept["stdout"]) == ("EXITED", "swept\n"), swept
        assert put(daemon, sandbox, "new", bytes(4 * MIB)) == 201
        done = daemon.execute(sandbox["id"], f"head -c 4194304 /dev/zero > {where}/again; echo ok")
        assert (done["status"], done["stdout"]) == ("EXITED", "ok\n"), done
        assert get(daemon, sandbox, "mine") == b"before"
    finally:
        daemon.release(sandbox["id"])


def _check_full(daemon: Daemon, sandbox: Any) -> None:
    answer = daemon.request("PUT", files(sandbox, "more"), bytes(2 * MIB))
    refused(answer, 507, "SANDBOX_DISK_QUOTA_EXCEEDED")
    assert "more" not in listed(daemon, sandbox)
    assert get(daemon, sandbox, "mine") == b"before"


def check_api_writes(daemon: Daemon) -> None:
    """The API cannot pass the limit, and room that it frees is there at once."""
    sandbox = daemon.create(limits={"disk_bytes": LIMIT})
    try:
        put(daemon, sandbox, "a", bytes(LIMIT // 2))
        put(daemon, sandbox, "b", bytes(LIMIT // 3))
        answer = daemon.request("PUT", files(sandbox, "c"), bytes(LIMIT // 2))
        refused(answer, 507, "SANDBOX_DISK_QUOTA_EXCEEDED")
        assert set(listed(daemon, sandbox)) == {"a", "b"}
        assert du_bytes(daemon, sandbox["id"]) <= LIMIT
        assert daemon.request("DELETE", files(sandbox, "a")).status == 204
        assert put(daemon, sandbox, "c", bytes(LIMIT // 2)) == 201
        # A limit that is raised is one at once, for running commands too.
        daemon.ok("PATCH", f"/v1/sandboxes/{sandbox['id']}", {"limits": {"disk_bytes": 2 * LIMIT}})
        assert put(daemon, sandbox, "d", bytes(LIMIT)) == 201
    finally:
        daemon.release(sandbox["id"])


def check_removed_but_open(daemon: Daemon) -> None:
    """What has no name any more counts as long as a process holds it."""
    sandbox = daemon.create(limits={"disk_bytes": LIMIT})
    code = (
        "import os, time\n"
        "for n in range(400):\n"
        "    fd = os.open('f', os.O_WRONLY | os.O_CREAT)\n"
        "    os.unlink('f')\n"
        "    os.write(fd, bytes(1 << 20))\n"
        "    time.sleep(0.03)\n"
    )
    try:
        ended = daemon.execute(sandbox["id"], python(code), timeout_seconds=60)
        assert ended["status"] == "DISK_QUOTA_EXCEEDED" or ended["exit_code"] == 1, ended
        eventually(lambda: du_bytes(daemon, sandbox["id"]) < MIB)
        assert put(daemon, sandbox, "new", bytes(MIB)) == 201
    finally:
        daemon.release(sandbox["id"])


def check_next_sandbox_has_it_all(daemon: Daemon) -> None:
    """What one sandbox had counts for no other, whatever uid that gets."""
    for _ in range(3):
        sandbox = daemon.create(limits={"disk_bytes": LIMIT})
        put(daemon, sandbox, "a", bytes(LIMIT * 3 // 4))
        daemon.release(sandbox["id"])


def check_usage(daemon: Daemon) -> None:
    """Metrics say what du says, as soon as there may be another count."""
    sandbox = daemon.create()
    try:
        script = (
            "mkdir -p a/b; head -c 3000000 /dev/urandom > a/b/f; ln a/b/f a/hard;"
            "head -c 2000000 /dev/zero > /tmp/t; truncate -s 1G sparse;"
            "for i in $(seq 50); do echo > a/$i; done; sync"
        )
        assert daemon.execute(sandbox["id"], script)["exit_code"] == 0
        put(daemon, sandbox, "mine", bytes(MIB))
        target = f"/v1/sandboxes/{sandbox['id']}/metrics"

        def agree() -> bool:
            now: int = daemon.ok("GET", target)["disk"]["used_bytes"]
            # Where it is counted, each of the little files may be more than its blocks.
            return -(64 << 10) <= now - du_bytes(daemon, sandbox["id"]) <= (64 << 10) + 60 * 4096

        eventually(agree)
        assert daemon.ok("GET", target)["disk"]["used_bytes"] > 6_000_000
        assert daemon.request("DELETE", files(sandbox, "a")).status == 204
        eventually(agree)
    finally:
        daemon.release(sandbox["id"])


# Files without a block, which take an inode each and nothing else.
MAKE_NODES = """
import os, sys, time
for number in range(40000):
    try:
        os.mknod(f"{sys.argv[1]}/n{number}")
    except OSError as exc:
        sys.exit(f"errno {exc.errno}")
    # All of them take longer than a count may be late.
    if number % 100 == 0:
        time.sleep(0.05)
"""


def check_inodes(daemon: Daemon, *, held_by: str, **body: Any) -> None:
    """Empty files use a limit up too: one for each 4 KiB of it."""
    sandbox = daemon.create(limits={"disk_bytes": LIMIT}, **body)
    try:
        ended = daemon.execute(sandbox["id"], python(MAKE_NODES, "."), timeout_seconds=100)
        made = int(daemon.execute(sandbox["id"], "ls -U | wc -l")["stdout"])
        if held_by == "kernel":
            assert ended["stderr"] in ("errno 122\n", "errno 28\n"), ended
            # An image has some to spare, of its own.
            assert made <= (LIMIT + LIMIT // 8 + (32 << 20)) // 4096
        else:
            assert ended["status"] == "DISK_QUOTA_EXCEEDED", ended
            assert LIMIT // 4096 < made < 40000
            answer = daemon.request("PUT", files(sandbox, "more"), b"x")
            refused(answer, 507, "SANDBOX_DISK_QUOTA_EXCEEDED")
        assert daemon.execute(sandbox["id"], "find . -name 'n*' -delete")["exit_code"] == 0
        # As soon as there may be another count.
        target = files(sandbox, "new")
        eventually(lambda: daemon.request("PUT", target, b"x").status == 201, seconds=30)
    finally:
        daemon.release(sandbox["id"])
