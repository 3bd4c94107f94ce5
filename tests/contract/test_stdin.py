# SPDX-License-Identifier: Apache-2.0
"""Standard input that stays open: every byte, in order, at the program's pace, to an end of its
own."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.probes import (
    executions,
    output,
    path_of,
    printed,
    python,
    refused,
    resident_bytes,
    start,
)
from tests.harness import Answer, Daemon

MIB = 1 << 20


def feed(daemon: Daemon, running: Any, data: bytes, **options: Any) -> Answer:
    """The answer to some input."""
    return daemon.request("POST", f"{path_of(running)}/stdin", data, **options)


def close(daemon: Daemon, running: Any) -> Answer:
    return daemon.request("POST", f"{path_of(running)}/stdin/close")


def opened(daemon: Daemon, sandbox: Any, argv: list[str] | str, **body: Any) -> Any:
    """A running execution with open input."""
    return start(daemon, sandbox, argv, stdin_open=True, **body)


def test_what_is_sent_arrives_and_the_end_comes_when_told(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, ["cat"])
    assert feed(daemon, running, b"one\n").json == {"written_bytes": 4}
    assert printed(daemon, running, b"one\n") == b"one\n"
    # No newline is added, nothing is held back.
    assert feed(daemon, running, b"two").json == {"written_bytes": 3}
    assert printed(daemon, running, b"two") == b"one\ntwo"
    assert feed(daemon, running, b"").json == {"written_bytes": 0}
    assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
    assert close(daemon, running).status == 204
    ended = daemon.wait(running)
    assert (ended["status"], ended["exit_code"], ended["stdout"]) == ("EXITED", 0, "one\ntwo")


def test_a_run_has_open_input_too(daemon: Daemon) -> None:
    body = {"argv": ["cat"], "stdin_open": True, "wait": False, "limits": {"memory_bytes": "64M"}}
    running = daemon.ok("POST", "/v1/run", body)
    feed(daemon, running, b"by itself")
    assert close(daemon, running).status == 204
    assert daemon.wait(running)["stdout"] == "by itself"


def test_open_input_has_no_end_by_itself(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, ["cat"], timeout_seconds=1)
    ended = daemon.wait(running)
    assert (ended["status"], ended["stdout"]) == ("TIMED_OUT", "")


def test_every_byte_is_as_it_was_sent(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, ["sha256sum"])
    digest = hashlib.sha256()
    for size in (1, 255, 4096, 65_537, 3 * MIB):
        data = bytes(range(256)) * (size // 256) + bytes(size % 256)
        digest.update(data)
        assert feed(daemon, running, data).json == {"written_bytes": size}
    assert close(daemon, running).status == 204
    assert daemon.wait(running)["stdout"].split()[0] == digest.hexdigest()


def test_three_bytes_are_three_bytes(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, ["wc", "-c"])
    feed(daemon, running, b"abc")
    close(daemon, running)
    assert daemon.wait(running)["stdout"] == "3\n"


def test_a_program_that_does_not_read_holds_up_its_sender_alone(
    daemon: Daemon, sandbox: Any
) -> None:
    running = opened(daemon, sandbox, "mkfifo go; echo made; read x < go; exec wc -c")
    printed(daemon, running, b"made")
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(feed, daemon, running, b"x" * (4 * MIB))
        for _ in range(5):
            assert daemon.execute(sandbox["id"], ["echo", "ok"])["stdout"] == "ok\n"
        assert not sent.done()
        daemon.execute(sandbox["id"], "echo > go")
        assert sent.result().json == {"written_bytes": 4 * MIB}
    close(daemon, running)
    assert daemon.wait(running)["stdout"] == f"made\n{4 * MIB}\n"


def test_a_sender_that_is_gone_makes_room_for_the_next(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, "kill -STOP $$; exec wc -c")
    with daemon.connect() as client:
        head = (
            f"POST {path_of(running)}/stdin HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n"
        )
        client.sendall(head.encode())
        client.settimeout(2)
        # Until nothing more is taken: the pipe is full, and so is what is in between.
        with contextlib.suppress(TimeoutError):
            while True:
                client.sendall(b"x" * 65_536)
    # It has left in the middle: its turn is over, though the program still reads nothing.
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(feed, daemon, running, b"y")
        daemon.ok("POST", f"{path_of(running)}/kill", {"signal": "SIGCONT"})
        assert sent.result().json == {"written_bytes": 1}
    assert close(daemon, running).status == 204
    assert 65_536 < int(daemon.wait(running)["stdout"]) < 10_000_000


def test_senders_at_once_are_served_in_turn(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, ["cat"])
    parts = [bytes([65 + n]) * 200_000 for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        for answer in pool.map(lambda part: feed(daemon, running, part), parts):
            assert answer.json == {"written_bytes": 200_000}
    close(daemon, running)
    daemon.wait(running)
    text = output(daemon, running)
    found = [text[n : n + 200_000] for n in range(0, len(text), 200_000)]
    assert sorted(found) == parts


def test_input_in_pieces_is_passed_on_as_it_comes(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, ["cat"])
    with daemon.connect() as client:
        head = f"POST {path_of(running)}/stdin HTTP/1.1\r\nHost: a\r\n"
        client.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        assert printed(daemon, running, b"one\n") == b"one\n"
        client.sendall(b"4\r\ntwo\n\r\n")
        assert printed(daemon, running, b"two\n") == b"one\ntwo\n"
        client.sendall(b"0\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
    close(daemon, running)
    daemon.wait(running)


def test_closing_twice_is_fine_and_nothing_can_be_written_then(
    daemon: Daemon, sandbox: Any
) -> None:
    running = opened(daemon, sandbox, "cat; exec sleep 300")
    assert [close(daemon, running).status for _ in range(3)] == [204, 204, 204]
    error = refused(feed(daemon, running, b"late"), 409, "STDIN_CLOSED")
    assert error["details"]["written_bytes"] == 0
    daemon.ok("POST", f"{path_of(running)}/kill")


def test_without_stdin_open_there_is_nothing_to_write_to(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, ["sleep", "300"])
    refused(feed(daemon, running, b"x"), 409, "STDIN_CLOSED")
    refused(close(daemon, running), 409, "STDIN_CLOSED")
    daemon.ok("POST", f"{path_of(running)}/kill")


def test_a_program_that_closes_its_input_is_told_of(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, "head -c 5; exec <&-; echo closed; exec sleep 300")
    feed(daemon, running, b"12345")
    printed(daemon, running, b"closed")
    refused(feed(daemon, running, b"x"), 409, "STDIN_CLOSED")
    assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
    daemon.ok("POST", f"{path_of(running)}/kill")


@pytest.mark.parametrize("way", ["kill", "exit", "timeout", "release"])
def test_a_sender_to_what_ends_learns_of_it(daemon: Daemon, create: Any, way: str) -> None:
    sandbox = create()
    code = "read line; sleep 0.3; exit 3" if way == "exit" else "exec sleep 300"
    limit = {"timeout_seconds": 1} if way == "timeout" else {}
    running = opened(daemon, sandbox, code, **limit)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(feed, daemon, running, b"\n" + b"x" * (2 * MIB))
        if way in ("kill", "release"):
            threading.Event().wait(0.3)
            assert not sent.done()
        if way == "kill":
            daemon.ok("POST", f"{path_of(running)}/kill")
        elif way == "release":
            daemon.release(sandbox["id"])
        error = refused(sent.result(), 409, "EXECUTION_FINISHED")
    assert 0 < error["details"]["written_bytes"] < 2 * MIB
    refused(feed(daemon, running, b"x"), 409, "EXECUTION_FINISHED")
    refused(close(daemon, running), 409, "EXECUTION_FINISHED")


def test_a_suspended_program_gets_its_input_when_it_goes_on(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, ["cat"])
    daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/suspend")
    assert feed(daemon, running, b"asleep").json == {"written_bytes": 6}
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(feed, daemon, running, b"x" * MIB)
        time.sleep(0.3)
        assert not sent.done()
        assert output(daemon, running) == b""
        daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/resume")
        assert sent.result().status == 200
    close(daemon, running)
    assert daemon.wait(running)["stdout_bytes"] == MIB + 6


def test_input_does_not_go_through_memory(daemon: Daemon, sandbox: Any) -> None:
    running = opened(daemon, sandbox, ["wc", "-c"])
    before = resident_bytes(daemon)
    total = 0
    for _ in range(8):
        total += feed(daemon, running, bytes(8 * MIB)).json["written_bytes"]
    assert total == 64 * MIB
    assert resident_bytes(daemon) - before < 16 * MIB
    close(daemon, running)
    assert daemon.wait(running)["stdout"] == f"{64 * MIB}\n"


@pytest.mark.parametrize(
    "body",
    [{"stdin": "x", "stdin_open": True}, {"stdin_base64": "eA==", "stdin_open": True},
     {"stdin_open": "yes"}, {"stdin": "x", "tty": {"rows": 2, "cols": 2}},
     {"tty": {"rows": 0, "cols": 80}}, {"tty": {"rows": 24}}, {"tty": True},
     {"tty": {"rows": 24, "cols": 65536}}, {"tty": {"rows": 1, "cols": 1, "term": "x"}}],
)  # fmt: skip
def test_bad_wishes_for_input_are_refused(daemon: Daemon, sandbox: Any, body: Any) -> None:
    answer = daemon.request("POST", executions(sandbox), {"argv": ["true"], "wait": False, **body})
    refused(answer, 400, "INVALID_REQUEST")


def test_a_program_that_reads_with_python_gets_lines(daemon: Daemon, sandbox: Any) -> None:
    code = "import sys\nfor line in sys.stdin: print(len(line), flush=True)"
    running = opened(daemon, sandbox, python(code))
    feed(daemon, running, "äö\n".encode())
    assert printed(daemon, running, b"3\n") == b"3\n"
    close(daemon, running)
    assert daemon.wait(running)["exit_code"] == 0
