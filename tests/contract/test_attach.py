# SPDX-License-Identifier: Apache-2.0
"""Attached by WebSocket: all streams both ways, many at once, and free to leave."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

from tests.contract.probes import descriptors, eventually, path_of, printed, refused, start
from tests.harness import Daemon
from tests.websocket import BINARY, TEXT, WebSocket, attached

MIB = 1 << 20


def attach(
    daemon: Daemon, running: Any, query: str = "", **options: Any
) -> AbstractContextManager[WebSocket]:
    return attached(daemon.socket, f"{path_of(running)}/attach{query}", **options)


def fill(connection: WebSocket) -> None:
    """Send until nothing more is taken, which must come soon."""
    for _ in range(200):
        try:
            connection.send(BINARY, b"x" * 65_536)
        except TimeoutError:
            return
    raise AssertionError("12 MiB went where nobody reads")


def test_output_input_and_end_go_over_one_connection(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo out; echo err >&2; cat; exit 4", stdin_open=True)
    with attach(daemon, running) as it:
        it.send(BINARY, b"one\n")
        it.send(BINARY, bytes(range(256)))
        it.order(type="close_stdin")
        streams, last, code = it.to_the_end()
    assert streams == {1: b"out\none\n" + bytes(range(256)), 2: b"err\n"}
    assert (last["type"], code) == ("exit", 1000)
    assert (last["execution"]["status"], last["execution"]["exit_code"]) == ("EXITED", 4)
    assert last["execution"]["id"] == running["id"]


def test_a_terminal_is_typed_into_and_resized(daemon: Daemon, sandbox: Any) -> None:
    script = "trap 'stty size' WINCH; echo up; while :; do read x && echo got $x && exit; done"
    running = start(daemon, sandbox, script, tty={"rows": 3, "cols": 4})
    with attach(daemon, running) as it:
        it.until(b"up\r\n")
        it.order(type="resize", rows=21, cols=43)
        it.until(b"21 43\r\n")
        it.send(BINARY, b"key\r")
        assert it.to_the_end()[0][1].endswith(b"got key\r\n")


def test_who_leaves_has_detached_and_may_come_again(daemon: Daemon, sandbox: Any) -> None:
    script = 'echo up; while read x; do echo "got $x"; done; echo end'
    running = start(daemon, sandbox, script, stdin_open=True)
    with attach(daemon, running) as it:
        it.until(b"up\n")
        it.send(BINARY, b"a\n")
        seen = len(b"up\n" + it.until(b"got a\n"))
    assert daemon.ok("GET", path_of(running))["status"] == "RUNNING"
    with attach(daemon, running, f"?stdout_offset={seen}") as it:
        it.send(BINARY, b"b\n")
        assert it.until(b"got b\n") == b"got b\n"
    with attach(daemon, running, "?stdout_offset=end") as it:
        it.order(type="close_stdin")
        assert it.to_the_end()[0][1] == b"end\n"
    # Of what has ended it is the whole, and the end.
    with attach(daemon, running) as it:
        streams, last, _ = it.to_the_end()
    assert streams[1] == b"up\ngot a\ngot b\nend\n"
    assert last["execution"]["status"] == "EXITED"


def test_all_who_are_attached_see_all_and_are_heard(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, ["cat"], stdin_open=True)
    with attach(daemon, running) as first, attach(daemon, running) as second:
        first.send(BINARY, b"first\n")
        assert second.until(b"first\n") == first.until(b"first\n") == b"first\n"
        second.send(BINARY, b"second\n")
        assert first.until(b"second\n") == second.until(b"second\n") == b"second\n"
        daemon.ok("POST", f"{path_of(running)}/kill")
        for one in (first, second):
            assert one.to_the_end()[1]["execution"]["status"] == "KILLED"


def test_what_cannot_be_done_is_told_and_the_rest_goes_on(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo up; while [ ! -e go ]; do sleep 0.1; done; echo later")
    with attach(daemon, running) as it:
        it.until(b"up\n")
        for kind, data, code in (
            (BINARY, b"x", "STDIN_CLOSED"),
            (TEXT, b'{"type": "resize", "rows": 1, "cols": 1}', "INVALID_REQUEST"),
            (TEXT, b'{"type": "resize", "rows": 1}', "INVALID_REQUEST"),
            (TEXT, b'{"type": "close_stdin", "rows": 1, "cols": 1}', "INVALID_REQUEST"),
            (TEXT, b'{"type": "explode"}', "INVALID_REQUEST"),
            (TEXT, b"{", "INVALID_REQUEST"),
        ):
            it.send(kind, data)
            told = it.told()
            assert (told["type"], told["error"]["code"]) == ("error", code)
        daemon.execute(sandbox["id"], ["touch", "go"])
        assert it.to_the_end()[0][1] == b"later\n"


def test_a_message_over_the_bound_ends_the_connection_alone(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, ["cat"], stdin_open=True)
    with attach(daemon, running) as it:
        # Cut off in the middle of it, perhaps.
        with contextlib.suppress(ConnectionError):
            it.send(BINARY, bytes(2 * MIB))
        with contextlib.suppress(ConnectionError, EOFError):
            assert it.to_the_end()[2] == 1009
    with attach(daemon, running) as it:
        it.send(BINARY, b"x" * MIB)
        it.until(b"x" * 1000)
    daemon.ok("POST", f"{path_of(running)}/kill")


def test_a_program_that_does_not_read_holds_up_its_writer_alone(
    daemon: Daemon, sandbox: Any
) -> None:
    running = start(daemon, sandbox, "echo up; exec sleep 300", stdin_open=True)
    with attach(daemon, running, timeout=2) as stuck:
        stuck.until(b"up\n")
        fill(stuck)
        with attach(daemon, running) as other:
            assert other.until(b"up\n") == b"up\n"
        assert daemon.execute(sandbox["id"], ["echo", "ok"])["stdout"] == "ok\n"
    # It is gone, though nothing was read from it: its turn is the next one's.
    with ThreadPoolExecutor(1) as pool:
        closed = pool.submit(daemon.request, "POST", f"{path_of(running)}/stdin/close")
        assert closed.result(timeout=20).status == 204
    daemon.ok("POST", f"{path_of(running)}/kill")


def test_a_reader_that_does_not_read_is_sent_no_more_than_fits(
    daemon: Daemon, sandbox: Any
) -> None:
    total = 40 * MIB
    running = start(
        daemon, sandbox, ["head", "-c", str(total), "/dev/zero"], max_output_bytes="64M"
    )
    with attach(daemon, running) as slow:
        assert daemon.wait(running)["stdout_bytes"] == total
        streams, last, _ = slow.to_the_end()
    assert len(streams[1]) == total
    assert last["execution"]["status"] == "EXITED"


def test_what_is_no_websocket_is_refused(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, ["sleep", "300"])
    target = f"{path_of(running)}/attach"
    refused(daemon.request("GET", target), 400, "INVALID_REQUEST")
    for bad, status in (("?stdout_offset=x", 400), ("?stdout_offset=1", 416), ("?a=b", 400)):
        with contextlib.closing(WebSocket(daemon.socket, target + bad)) as it:
            assert it.status == status
    nobody = f"/v1/sandboxes/{sandbox['id']}/executions/aaaaaaaaaaaa/attach"
    with contextlib.closing(WebSocket(daemon.socket, nobody)) as it:
        assert it.status == 404
    daemon.ok("POST", f"{path_of(running)}/kill")


def test_suspended_and_going_on(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, ["cat"], stdin_open=True)
    with attach(daemon, running) as it:
        daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/suspend")
        it.send(BINARY, b"asleep\n")
        it.order(type="close_stdin")
        daemon.ok("POST", f"/v1/sandboxes/{sandbox['id']}/resume")
        assert it.to_the_end()[0][1] == b"asleep\n"


def test_descriptors_of_those_who_left_are_freed(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo up; exec cat", stdin_open=True)
    printed(daemon, running, b"up")
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(attach(daemon, running)).until(b"up\n")
        held = descriptors(daemon)
        assert held >= 100
    eventually(lambda: descriptors(daemon) <= held - 100)
    daemon.ok("POST", f"{path_of(running)}/kill")
