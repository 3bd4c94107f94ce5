# SPDX-License-Identifier: Apache-2.0
"""Much data and many entries: the daemon's memory stays flat, and others are served meanwhile."""

from __future__ import annotations

import hashlib
import http.client
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.big_trees import latencies_meanwhile, make_tree, release_whole
from tests.contract.probes import python
from tests.contract.test_files import files
from tests.harness import Daemon, running_daemon

MIB = 1 << 20
# What memory may grow by, whatever is transferred.
FLAT = 16 * MIB


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """A daemon that has served a little, so that its memory is what it needs at rest."""
    with running_daemon(SANDBOX_MEMORY_LIMIT_BYTES="192M") as made:
        sandbox = made.create()
        target = files(sandbox, "f")
        assert made.request("PUT", target, bytes(8 * MIB)).status == 201
        assert len(made.request("GET", target).body) == 8 * MIB
        made.release(sandbox["id"])
        yield made


def peak_bytes(daemon: Daemon) -> int:
    """The most memory that was resident since `reset_peak`."""
    assert daemon.process is not None
    for line in Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def reset_peak(daemon: Daemon) -> int:
    """Forget the peak so far; what is resident now."""
    assert daemon.process is not None
    # proc(5), /proc/pid/clear_refs
    Path(f"/proc/{daemon.process.pid}/clear_refs").write_text("5")
    return peak_bytes(daemon)


@pytest.mark.timeout(600)
def test_a_gigabyte_up_and_down(
    daemon: Daemon,
    soak_count: Callable[[int], int],
    record_property: Callable[[str, object], None],
) -> None:
    sandbox = daemon.create(limits={"disk_bytes": "3G"})
    block = os.urandom(MIB)
    count = soak_count(1024)
    before = reset_peak(daemon)
    with daemon.connect() as connection:
        head = f"PUT {files(sandbox, 'big')} HTTP/1.1\r\nHost: x\r\n"
        connection.sendall(f"{head}Content-Length: {count * MIB}\r\n\r\n".encode())
        for _ in range(count):
            connection.sendall(block)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 201, answer.read()
    up = peak_bytes(daemon) - before
    assert up <= FLAT
    sent = hashlib.sha256()
    for _ in range(count):
        sent.update(block)
    before = reset_peak(daemon)
    for target in (files(sandbox, "big"), f"/v1/sandboxes/{sandbox['id']}/archive/big"):
        with daemon.connect() as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.status == 200
            received = hashlib.sha256()
            if "/archive/" in target:
                answer.read(512)
            left = count * MIB
            while left and (piece := answer.read(min(MIB, left))):
                received.update(piece)
                left -= len(piece)
            assert received.digest() == sent.digest(), target
    down = peak_bytes(daemon) - before
    record_property("memory_growth_bytes", {"up": up, "down": down})
    assert down <= FLAT
    daemon.release(sandbox["id"])


@pytest.mark.timeout(900)
def test_a_tree_of_a_million_entries_goes_away(
    daemon: Daemon, soak_count: Callable[[int], int]
) -> None:
    sandbox, other = daemon.create(), daemon.create()
    make_tree(daemon, sandbox, soak_count(1_000_000))
    before = reset_peak(daemon)
    listing = daemon.ok("GET", f"/v1/sandboxes/{sandbox['id']}/directories?depth=30")
    assert (len(listing["entries"]), listing["truncated"]) == (10_000, True)
    taken = latencies_meanwhile(daemon, other, lambda: release_whole(daemon, sandbox))
    assert taken
    assert peak_bytes(daemon) - before <= 2 * FLAT
    assert not os.path.exists(daemon.state / "sandboxes" / sandbox["id"] / "home")
    daemon.release(other["id"])


@pytest.mark.timeout(300)
def test_a_deep_tree_is_deleted_by_the_api(daemon: Daemon) -> None:
    sandbox = daemon.create()
    deep = (
        "import os\n"
        "os.mkdir('top'); os.chdir('top')\n"
        "for _ in range(5000):\n"
        "    os.mkdir('d'); os.chdir('d')\n"
        "open('file', 'w').close()\n"
        "os.chmod(os.environ['HOME'] + '/top', 0)\n"
    )
    made = daemon.execute(sandbox["id"], python(deep))
    assert made["exit_code"] == 0, made["stderr"]
    archive = f"/v1/sandboxes/{sandbox['id']}/archive/"
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        # Paths that no client could use: broken off, and never a part taken for the whole.
        daemon.request("GET", archive)
    assert daemon.request("DELETE", files(sandbox, "top")).status == 204
    assert daemon.ok("GET", f"/v1/sandboxes/{sandbox['id']}/directories")["entries"] == []
    daemon.release(sandbox["id"])
