# SPDX-License-Identifier: Apache-2.0
"""Server-Sent Events of one execution: every byte once, whole characters, an end, a way back."""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any, NamedTuple

import pytest

from tests.contract.probes import path_of, python, refused, start
from tests.harness import Daemon


class Event(NamedTuple):
    id: str
    name: str
    data: Any

    @property
    def raw(self) -> bytes:
        """The bytes it tells of."""
        if "base64" in self.data:
            return base64.b64decode(self.data["base64"])
        text: str = self.data["text"]
        return text.encode()


def next_event(answer: http.client.HTTPResponse) -> Event | None:
    """The next event; None at the end of the stream."""
    fields: dict[str, str] = {}
    while line := answer.readline():
        text = line.decode().removesuffix("\n")
        if not text and fields:
            return Event(fields["id"], fields["event"], json.loads(fields["data"]))
        name, _, value = text.partition(": ")
        if name:
            fields[name] = value
    return None


def all_events(daemon: Daemon, execution: Any, **headers: str) -> list[Event]:
    found = []
    with daemon.stream(f"{path_of(execution)}/events", **headers) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream"
        while event := next_event(answer):
            found.append(event)
    return found


def joined(events: list[Event], name: str) -> bytes:
    return b"".join(event.raw for event in events if event.name == name)


def test_both_streams_and_the_end_are_told(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo out; echo err >&2; exit 3")
    events = all_events(daemon, running)
    assert (joined(events, "stdout"), joined(events, "stderr")) == (b"out\n", b"err\n")
    assert [event.name for event in events].index("exit") == len(events) - 1
    ended = events[-1].data
    assert (ended["id"], ended["status"], ended["exit_code"]) == (running["id"], "EXITED", 3)
    assert events[-1].id == "4-4-exit"


def test_an_event_comes_when_it_happens(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo one; read x; echo $x", stdin_open=True)
    with daemon.stream(f"{path_of(running)}/events") as answer:
        first = next_event(answer)
        assert first == Event(
            "4-0", "stdout", {"offset_bytes": 0, "size_bytes": 4, "text": "one\n"}
        )
        daemon.ok("POST", f"{path_of(running)}/stdin", b"two\n")
        second = next_event(answer)
        assert second == Event(
            "8-0", "stdout", {"offset_bytes": 4, "size_bytes": 4, "text": "two\n"}
        )
        last = next_event(answer)
        assert last is not None
        assert (last.name, next_event(answer)) == ("exit", None)


def test_a_character_that_comes_in_parts_is_told_whole(daemon: Daemon, sandbox: Any) -> None:
    code = (
        "import os, sys\n"
        "for byte in '\\u20ac\\U0001f600e'.encode():\n"
        "  os.write(1, bytes([byte])); sys.stdin.read(1)"
    )
    running = start(daemon, sandbox, python(code), stdin_open=True)
    with daemon.stream(f"{path_of(running)}/events") as answer:
        for _ in range(8):
            daemon.ok("POST", f"{path_of(running)}/stdin", b"\n")
        events = []
        while event := next_event(answer):
            events.append(event)
    told = [event for event in events if event.name == "stdout"]
    assert "".join(event.data["text"] for event in told) == "\u20ac\U0001f600e"
    assert not any("base64" in event.data for event in told)


def test_bytes_that_are_no_text_are_told_exactly(daemon: Daemon, sandbox: Any) -> None:
    data = bytes(range(256)) * 300 + b"\xe2\x82"
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300 + b'\\xe2\\x82')"
    events = all_events(daemon, start(daemon, sandbox, python(code)))
    assert joined(events, "stdout") == data
    for event in events[:-1]:
        assert event.data["text"] == event.raw.decode("utf-8", "replace")


@pytest.mark.parametrize(
    "text", ["a\rb\r\nc\n\nd", "data: x\n\nid: 7\nevent: exit\n\n", "\0\x1b[1m"]
)
def test_no_output_can_pass_for_an_event(daemon: Daemon, sandbox: Any, text: str) -> None:
    events = all_events(daemon, start(daemon, sandbox, ["cat"], stdin=text))
    assert [event.name for event in events] == ["stdout", "exit"]
    assert events[0].data["text"] == text


def test_every_event_is_a_place_to_go_on_from(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "for n in 1 2 3; do echo $n; echo e$n >&2; sleep 0.1; done")
    whole = all_events(daemon, running)
    out, err = joined(whole, "stdout"), joined(whole, "stderr")
    told = {"stdout": b"", "stderr": b""}
    for event in whole[:-1]:
        told[event.name] += event.raw
        rest = all_events(daemon, running, Last_Event_ID=event.id)
        assert told["stdout"] + joined(rest, "stdout") == out
        assert told["stderr"] + joined(rest, "stderr") == err
        assert rest[-1].name == "exit"
    # After the end there is nothing: an EventSource then stops.
    done = daemon.request("GET", f"{path_of(running)}/events", Last_Event_ID=whole[-1].id)
    assert (done.status, done.body) == (204, b"")


def test_a_reader_that_was_away_gets_what_it_missed(daemon: Daemon, sandbox: Any) -> None:
    script = "echo before; read x; seq 20000; echo done"
    running = start(daemon, sandbox, script, stdin_open=True)
    with daemon.stream(f"{path_of(running)}/events") as answer:
        first = next_event(answer)
        assert first is not None
    daemon.ok("POST", f"{path_of(running)}/stdin", b"\n")
    daemon.wait(running)
    rest = all_events(daemon, running, Last_Event_ID=first.id)
    numbers = b"".join(b"%d\n" % n for n in range(1, 20001))
    assert first.raw + joined(rest, "stdout") == b"before\n" + numbers + b"done\n"


@pytest.mark.parametrize(
    "bad", ["x", "1", "1-", "-1-2", "1-2-3", "1-2-exits", "9" * 20 + "-0", "١-١"]
)
def test_a_bad_id_is_refused(daemon: Daemon, sandbox: Any, bad: str) -> None:
    running = start(daemon, sandbox, ["true"])
    target = f"{path_of(running)}/events"
    answer = daemon.request("GET", target, Last_Event_ID=bad.encode().decode("latin-1"))
    refused(answer, 400, "INVALID_REQUEST")
    ahead = daemon.request("GET", target, Last_Event_ID="1-0")
    refused(ahead, 416, "RANGE_NOT_SATISFIABLE")
