# SPDX-License-Identifier: Apache-2.0
"""When output came, and what came since a moment."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.probes import eventually, path_of, python, refused, start
from tests.contract.test_execution_events import Event, all_events, joined, next_event
from tests.harness import Daemon

# More than times are kept apart by, whatever the host is busy with.
APART = timedelta(seconds=0.2)
LINES = "for word in $WORDS; do echo $word; echo e-$word >&2; read x; done"


def at(event: Event) -> datetime:
    return datetime.fromisoformat(event.data["at"])


def timed(daemon: Daemon, execution: Any, query: str = "", **headers: str) -> list[Event]:
    found = []
    target = f"{path_of(execution)}/events?timestamps=true{query}"
    with daemon.stream(target, **headers) as answer:
        assert answer.status == 200
        while event := next_event(answer):
            found.append(event)
    return found


def since(moment: datetime) -> str:
    return f"since={quote(moment.isoformat())}"


@pytest.fixture
def spoken(daemon: Daemon, sandbox: Any) -> tuple[Any, list[datetime]]:
    """An ended execution that printed three words, and a moment before each of them."""
    running = start(daemon, sandbox, LINES, stdin_open=True, env={"WORDS": "one two three"})
    moments = [datetime.fromisoformat(running["started_at"])]
    for sizes in ((4, 6), (8, 12), (14, 20)):
        await_sizes(daemon, running, *sizes)
        moments.append(datetime.now(UTC) + APART / 2)
        await_moment(moments[-1] + APART / 2)
        daemon.ok("POST", f"{path_of(running)}/stdin", b"\n")
    return daemon.wait(running), moments


def await_sizes(daemon: Daemon, running: Any, *sizes: int) -> None:
    """Until so much of stdout, and of stderr, is there."""
    names = ("stdout_bytes", "stderr_bytes")[: len(sizes)]

    def are_there() -> bool:
        seen = daemon.ok("GET", path_of(running))
        return tuple(seen[name] for name in names) == sizes

    eventually(are_there)


def await_moment(moment: datetime) -> None:
    """By the clock of the server, which is ours."""
    eventually(lambda: datetime.now(UTC) > moment)


def test_each_piece_has_its_time(daemon: Daemon, spoken: Any) -> None:
    execution, moments = spoken
    events = timed(daemon, execution)
    for name, words in (
        ("stdout", ["one\n", "two\n", "three\n"]),
        ("stderr", ["e-one\n", "e-two\n", "e-three\n"]),
    ):
        told = [event for event in events if event.name == name]
        assert [event.data["text"] for event in told] == words
        for event, before, after in zip(told, moments, moments[1:], strict=False):
            assert before <= at(event) < after
        assert all(event.data["at"].endswith("Z") for event in told)
    assert at(events[-2]) <= datetime.fromisoformat(execution["finished_at"])
    # Nobody gets them who did not ask.
    assert not any("at" in event.data for event in all_events(daemon, execution))


def test_what_came_since_a_moment(daemon: Daemon, spoken: Any) -> None:
    execution, moments = spoken
    whole = b"one\ntwo\nthree\n"
    for moment, begin in zip(moments, (0, 4, 8, 14), strict=True):
        for more in ("", "&follow=true"):
            answer = daemon.request("GET", f"{path_of(execution)}/output?{since(moment)}{more}")
            assert answer.body == whole[begin:]
            assert answer.headers["X-Output-Offset"] == str(begin)
        events = timed(daemon, execution, f"&{since(moment)}")
        assert joined(events, "stdout") == whole[begin:]
        assert joined(events, "stderr").count(b"e-") == whole[begin:].count(b"\n")
    later = f"{path_of(execution)}/output?{since(moments[1])}&offset=8"
    assert daemon.request("GET", later).body == b"three\n"
    rest = timed(daemon, execution, f"&{since(moments[1])}", Last_Event_ID="8-0")
    assert (joined(rest, "stdout"), joined(rest, "stderr")) == (b"three\n", b"e-two\ne-three\n")
    ahead = datetime.now(UTC) + timedelta(days=1)
    assert daemon.request("GET", f"{path_of(execution)}/output?{since(ahead)}").body == b""


def test_what_comes_after_a_moment_is_followed(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo before; read x; echo after", stdin_open=True)
    eventually(lambda: daemon.request("GET", f"{path_of(running)}/output").body == b"before\n")
    ahead = datetime.now(UTC) + timedelta(hours=1)
    with daemon.stream(f"{path_of(running)}/output?follow=true&{since(ahead)}") as answer:
        daemon.ok("POST", f"{path_of(running)}/stdin", b"\n")
        assert answer.read() == b"after\n"


def test_events_of_what_is_there_now(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, "echo one; read x; echo two", stdin_open=True)
    eventually(lambda: daemon.request("GET", f"{path_of(running)}/output").body == b"one\n")
    now = timed(daemon, running, "&follow=false")
    assert [(event.id, event.name) for event in now] == [("4-0", "stdout")]
    daemon.ok("POST", f"{path_of(running)}/stdin", b"\n")
    daemon.wait(running)
    ended = timed(daemon, running, "&follow=false", Last_Event_ID="4-0")
    assert [(event.id, event.name) for event in ended] == [("8-0", "stdout"), ("8-0-exit", "exit")]


def test_a_character_that_comes_in_parts_has_the_time_of_its_first(
    daemon: Daemon, sandbox: Any
) -> None:
    code = (
        "import os, sys\n"
        "for part in (b'a\\xe2\\x82', b'\\xacb', b'c'):\n  os.write(1, part); sys.stdin.read(1)"
    )
    running = start(daemon, sandbox, python(code), stdin_open=True)
    for size in (3, 5, 6):
        await_sizes(daemon, running, size)
        await_moment(datetime.now(UTC) + APART)
        daemon.ok("POST", f"{path_of(running)}/stdin", b"\n")
    daemon.wait(running)
    told = [event for event in timed(daemon, running) if event.name == "stdout"]
    assert [event.data["text"] for event in told] == ["a\u20ac", "b", "c"]
    assert at(told[0]) + APART <= at(told[1])
    assert at(told[1]) + APART <= at(told[2])


def test_where_times_were_not_kept_that_is_said(daemon: Daemon, sandbox: Any) -> None:
    silent = daemon.execute(sandbox["id"], ["true"])
    ended = daemon.execute(sandbox["id"], ["echo", "old"])
    for execution in (silent, ended):
        # As an older sandboxd left it.
        [directory] = daemon.state.glob(f"sandboxes/*/executions/{execution['id']}")
        for file in directory.glob("*.times"):
            os.unlink(file)
    for target in (f"output?{since(datetime.now(UTC))}", "events?timestamps=true"):
        error = refused(
            daemon.request("GET", f"{path_of(ended)}/{target}"), 409, "OUTPUT_TIMES_UNKNOWN"
        )
        assert "stdout" in error["message"]
        assert daemon.request("GET", f"{path_of(silent)}/{target}").status == 200
    assert daemon.request("GET", f"{path_of(ended)}/output").body == b"old\n"
    assert joined(all_events(daemon, ended), "stdout") == b"old\n"


@pytest.mark.parametrize("bad", ["since=10m", "since=2026-01-02", "timestamps=x", "follow=x"])
def test_a_bad_query_is_refused(daemon: Daemon, sandbox: Any, bad: str) -> None:
    running = daemon.execute(sandbox["id"], ["true"])
    answer = daemon.request("GET", f"{path_of(running)}/events?{bad}")
    refused(answer, 400, "INVALID_REQUEST")
