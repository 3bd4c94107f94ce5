# SPDX-License-Identifier: Apache-2.0
"""Deep paths: bounded, at a cost that does not grow with their square, and nobody else's matter."""

from __future__ import annotations

import http.client
import io
import tarfile
import threading
import time
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import python, refused
from tests.contract.test_files import files, get, listed, put
from tests.harness import Daemon

DEEPEST = 256
# A chain of directories that no path reaches the end of, with a file at each of the first levels.
CHAIN = """
import os
for depth in range(3000):
    os.mkdir("d")
    os.chdir("d")
    if depth < 400:
        open("f", "w").close()
"""


def test_the_deepest_path_works_and_one_more_is_refused(daemon: Daemon, sandbox: Any) -> None:
    path = "/".join(["d"] * (DEEPEST - 1)) + "/f"
    put(daemon, sandbox, path, b"deep", "?parents=true")
    assert get(daemon, sandbox, path) == b"deep"
    for method, target in (
        ("GET", files(sandbox, f"d/{path}")),
        ("PUT", files(sandbox, f"d/{path}?parents=true")),
        ("GET", f"/v1/sandboxes/{sandbox['id']}/directories/d/{path}"),
        ("GET", f"/v1/sandboxes/{sandbox['id']}/archive//tmp/d/{path}"),
    ):
        answer = daemon.request(method, target, b"x" if method == "PUT" else None)
        error = refused(answer, 400, "INVALID_REQUEST")
        assert f"over {DEEPEST} names" in error["message"]


def test_a_tree_that_is_deeper_is_not_packed_but_goes_away(daemon: Daemon, sandbox: Any) -> None:
    assert daemon.execute(sandbox["id"], python(CHAIN))["exit_code"] == 0
    # What was cut short must not look like a whole tree.
    with daemon.stream(f"/v1/sandboxes/{sandbox['id']}/archive/d") as answer:
        assert answer.status == 200
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
    assert len(listed(daemon, sandbox, "d", "?depth=30")) == 60
    found = daemon.ok("GET", f"/v1/sandboxes/{sandbox['id']}/directories/d?depth=4096")
    assert found["truncated"]
    assert DEEPEST < max(entry["path"].count("/") for entry in found["entries"]) < DEEPEST + 3
    assert daemon.request("DELETE", files(sandbox, "d")).status == 204


def test_a_member_that_is_deeper_is_refused(daemon: Daemon, sandbox: Any) -> None:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as made:
        made.addfile(tarfile.TarInfo("/".join(["d"] * (DEEPEST + 1))))
    target = f"/v1/sandboxes/{sandbox['id']}/archive/"
    error = refused(daemon.request("PUT", target, written.getvalue()), 400, "INVALID_REQUEST")
    assert "over 256 names" in error["message"]


def test_what_one_caller_does_deep_down_keeps_no_other_waiting(
    daemon: Daemon, create: Create
) -> None:
    """With 2,000 names and a lookup from the top for each it was a minute for one byte."""
    hostile, calm = create(), create()
    deep = "/d" * (DEEPEST - 3)
    assert daemon.execute(hostile["id"], python(CHAIN))["exit_code"] == 0
    ends = threading.Event()

    def attack(number: int) -> None:
        turn = 0
        while not ends.is_set():
            turn += 1
            daemon.request("PUT", files(hostile, f"{number}-{turn}{deep}/f?parents=true"), b"x")
            daemon.request("GET", f"/v1/sandboxes/{hostile['id']}/directories/d?depth=30")

    threads = [threading.Thread(target=attack, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    try:
        taken = []
        for number in range(10):
            begin = time.monotonic()
            put(daemon, calm, f"f{number}", b"x")
            taken.append(time.monotonic() - begin)
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert sorted(taken)[5] < 2, taken
