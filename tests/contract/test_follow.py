# SPDX-License-Identifier: Apache-2.0
"""Output as it comes: whole, in time, to the end, at the reader's pace."""

from __future__ import annotations

import contextlib
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.probes import (
    descriptors,
    eventually,
    executions,
    path_of,
    python,
    refused,
    resident_bytes,
    start,
)
from tests.harness import Daemon

MIB = 1 << 20
COUNT = "for n in 1 2 3 4 5; do echo $n; sleep 0.1; done; echo end >&2"


def test_follow_sends_each_line_when_it_is_printed_and_ends_with_the_execution(
    daemon: Daemon, sandbox: Any
) -> None:
    running = start(daemon, sandbox, "echo one; read x; echo $x", stdin="two\n")
    with daemon.stream(f"{path_of(running)}/output?follow=true") as answer:
        assert answer.status == 200
        assert answer.readline() == b"one\n"
        assert answer.read() == b"two\n"
    assert daemon.wait(running)["status"] == "EXITED"


def test_follow_does_not_wait_for_the_end(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo first; exec sleep 300")
    with daemon.stream(f"{path_of(running)}/output?follow=true", timeout=20) as answer:
        assert answer.readline() == b"first\n"
        assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
        daemon.ok("POST", f"{path_of(running)}/kill")
        assert answer.read() == b""


def test_follow_from_an_offset_is_the_rest(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, COUNT)
    with daemon.stream(f"{path_of(running)}/output?follow=true") as answer:
        taken = answer.readline() + answer.readline()
    # The reader went away and comes again with what it has.
    with daemon.stream(f"{path_of(running)}/output?follow=true&offset={len(taken)}") as answer:
        assert taken + answer.read() == b"1\n2\n3\n4\n5\n"
    with daemon.stream(f"{path_of(running)}/output?follow=true&stream=stderr") as answer:
        assert answer.read() == b"end\n"
    # Of an ended execution it is all of it, at once; and nothing from its end on.
    assert (
        daemon.request("GET", f"{path_of(running)}/output?follow=true").body == b"1\n2\n3\n4\n5\n"
    )
    assert daemon.request("GET", f"{path_of(running)}/output?follow=true&offset=10").body == b""
    past = daemon.request("GET", f"{path_of(running)}/output?follow=true&offset=11")
    refused(past, 416, "RANGE_NOT_SATISFIABLE")


def test_what_is_printed_fast_is_followed_whole(daemon: Daemon, sandbox: Any) -> None:
    code = (
        "import hashlib, os\nh = hashlib.sha256()\n"
        "for n in range(200):\n b = os.urandom(40_000); h.update(b); os.write(1, b)\n"
        "os.write(2, h.hexdigest().encode())"
    )
    running = start(daemon, sandbox, python(code))
    digest = hashlib.sha256()
    with daemon.stream(f"{path_of(running)}/output?follow=true") as answer:
        while chunk := answer.read(65_536):
            digest.update(chunk)
    assert daemon.wait(running)["stderr"] == digest.hexdigest()


def test_a_reader_that_does_not_read_holds_up_nobody(daemon: Daemon, sandbox: Any) -> None:
    running = start(
        daemon, sandbox, ["head", "-c", str(40 * MIB), "/dev/zero"], max_output_bytes="64M"
    )
    with daemon.stream(f"{path_of(running)}/output?follow=true") as slow:
        assert slow.status == 200
        # The program is not slowed down by it, nor is another reader.
        ended = daemon.wait(running)
        assert (ended["status"], ended["stdout_bytes"]) == ("EXITED", 40 * MIB)
        with daemon.stream(f"{path_of(running)}/output?follow=true") as other:
            assert sum(map(len, iter(lambda: other.read(MIB), b""))) == 40 * MIB
        assert sum(map(len, iter(lambda: slow.read(MIB), b""))) == 40 * MIB


def test_many_readers_that_do_not_read_take_little_memory(daemon: Daemon, sandbox: Any) -> None:
    running = start(
        daemon, sandbox, ["head", "-c", str(20 * MIB), "/dev/zero"], max_output_bytes="64M"
    )
    before = resident_bytes(daemon)
    with contextlib.ExitStack() as slow:
        for kind in ("output?follow=true", "events") * 30:
            slow.enter_context(daemon.stream(f"{path_of(running)}/{kind}"))
        assert daemon.wait(running)["stdout_bytes"] == 20 * MIB
        # Each is served what its socket takes, and has its next piece ready.
        assert daemon.execute(sandbox["id"], ["echo", "ok"])["stdout"] == "ok\n"
        assert resident_bytes(daemon) - before < 60 * MIB


@pytest.mark.parametrize("stopped", ["suspend", "kill", "release"])
def test_followers_of_what_is_stopped(
    daemon: Daemon, create: Any, sandbox: Any, stopped: str
) -> None:
    running = start(daemon, sandbox, "while :; do echo x; sleep 0.05; done")
    with daemon.stream(f"{path_of(running)}/output?follow=true") as answer:
        assert answer.readline() == b"x\n"
        if stopped == "suspend":
            daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/suspend")
            size = daemon.ok("GET", path_of(running))["stdout_bytes"]
            assert [answer.readline() for _ in range(size // 2 - 1)] == [b"x\n"] * (size // 2 - 1)
            daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/resume")
            assert answer.readline() == b"x\n"
        elif stopped == "kill":
            daemon.ok("POST", f"{path_of(running)}/kill")
            assert set(answer.read().splitlines()) <= {b"x"}
        else:
            daemon.release(sandbox["id"])
            assert set(answer.read().splitlines()) <= {b"x"}


def test_two_hundred_idle_followers_harm_nobody(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo up; exec sleep 300")
    memory = resident_bytes(daemon)
    with contextlib.ExitStack() as followers:
        for _ in range(200):
            target = f"{path_of(running)}/output?follow=true"
            answer = followers.enter_context(daemon.stream(target))
            assert answer.readline() == b"up\n"
        held = descriptors(daemon)
        assert held >= 200
        assert resident_bytes(daemon) - memory < 32 * MIB
        with ThreadPoolExecutor(4) as pool:
            ran = [pool.submit(daemon.execute, sandbox["id"], ["echo", "ok"]) for _ in range(12)]
            assert {one.result()["stdout"] for one in ran} == {"ok\n"}
    # The clients are gone without a word: so is all that was held for them.
    eventually(lambda: descriptors(daemon) <= held - 200)
    daemon.ok("POST", f"{path_of(running)}/kill")


def test_nobodys_output_cannot_be_followed(daemon: Daemon, sandbox: Any) -> None:
    answer = daemon.request("GET", f"{executions(sandbox)}/aaaaaaaaaaaa/output?follow=true")
    refused(answer, 404, "EXECUTION_NOT_FOUND")
