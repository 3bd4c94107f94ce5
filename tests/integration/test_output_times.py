# SPDX-License-Identifier: Apache-2.0
"""When output came, as both clients and sandboxctl tell it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from sandboxd.client import AsyncSandbox, Handle, Sandbox, TimedOutput
from sandboxd.errors import OutputTimesUnknown
from tests.fixtures import daemon_fixture
from tests.harness import Daemon, running_daemon
from tests.integration.sandboxctl import ctl

pytestmark = pytest.mark.timeout(180)
WORDS = "for n in 0 1 2; do echo o$n; echo e$n >&2; read line; done"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")
daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off")


@pytest.fixture(scope="module")
def box(daemon: Daemon) -> Iterator[Sandbox]:
    with Sandbox.create("box", socket=daemon.socket) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def spoken(box: Sandbox) -> tuple[Handle, datetime]:
    """What printed three times, the last time after the moment."""
    handle = box.run(WORDS, background=True, stdin=True)
    outputs, moment = handle.output(), datetime.now(UTC)
    seen = ""
    for number in range(3):
        while f"o{number}" not in seen or f"e{number}" not in seen:
            seen += next(outputs).text
        if number == 1:
            moment = datetime.now(UTC) + timedelta(seconds=0.1)
            while datetime.now(UTC) < moment + timedelta(seconds=0.1):
                time.sleep(0.02)
        handle.write_stdin("\n")
    assert list(outputs) == []
    return handle, moment


def words(outputs: list[TimedOutput]) -> set[str]:
    return {word for output in outputs for word in output.text.split()}


def test_each_piece_has_its_time(spoken: tuple[Handle, datetime]) -> None:
    handle, moment = spoken
    outputs = list(handle.output())
    assert words(outputs) == {"o0", "e0", "o1", "e1", "o2", "e2"}
    for output in outputs:
        assert output.at is not None
        assert (output.at > moment) == (output.text in ("o2\n", "e2\n"))
        assert output.text.encode() == output.data
    assert words(list(handle.output(since=moment))) == {"o2", "e2"}
    assert list(handle.output(since=moment + timedelta(hours=1))) == []


def test_what_is_no_text_is_exact(box: Sandbox) -> None:
    handle = box.run(["printf", r"a\377\000b"], background=True)
    assert b"".join(output.data for output in handle.output()) == b"a\xff\0b"


async def test_the_same_for_asyncio(daemon: Daemon, spoken: tuple[Handle, datetime]) -> None:
    handle, moment = spoken
    box = await AsyncSandbox.connect("box", socket=daemon.socket)
    [same] = [one for one in await box.executions() if one.id == handle.id]
    assert words([output async for output in same.output(since=moment)]) == {"o2", "e2"}
    assert [output async for output in same.output()] == list(handle.output())


def test_it_goes_on_over_a_restart_of_the_daemon() -> None:
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        sandbox = Sandbox.create(socket=daemon.socket)
        script = "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.1; done"
        handle = sandbox.run(script, background=True)
        pieces = handle.output()
        seen = [next(pieces)]
        daemon.kill()
        restart = threading.Timer(0.5, daemon.start)
        restart.start()
        seen += pieces
        restart.join()
        assert [line for piece in seen for line in piece.text.split()] == [*map(str, range(40))]
        moments = [piece.at for piece in seen if piece.at is not None]
        assert moments == sorted(moments)
        assert len(moments) == len(seen)
        assert handle.wait(60).ok
        sandbox.kill()


def test_logs_since(daemon: Daemon, spoken: tuple[Handle, datetime]) -> None:
    handle, moment = spoken
    since = moment.isoformat().replace("+00:00", "Z")
    for argv, out, error in (
        (["--since", since], "o2\n", "e2\n"),
        (["-f", "--since", since], "o2\n", "e2\n"),
        (["--since", since, "--stream", "stderr"], "", "e2\n"),
        (["--since", "1h"], "o0\no1\no2\n", "e0\ne1\ne2\n"),
        (["--since", "1h", "--tail", "2"], "o1\no2\n", "e1\ne2\n"),
        (["--since", since, "--tail", "2"], "o2\n", "e2\n"),
        (["--since", "2999-01-01T00:00:00Z"], "", ""),
    ):
        done = ctl(daemon, "logs", *argv, "box", handle.id)
        assert (done.stdout, done.stderr) == (out, error), argv
    ctl(daemon, "logs", "--since", "yesterday", "box", handle.id, code=125)


def test_logs_with_times(daemon: Daemon, box: Sandbox, spoken: tuple[Handle, datetime]) -> None:
    handle, moment = spoken
    done = ctl(daemon, "logs", "-t", "box", handle.id)
    assert TIME.sub("", done.stdout) == "o0\no1\no2\n"
    assert TIME.sub("", done.stderr) == "e0\ne1\ne2\n"
    times = [datetime.fromisoformat(line.split()[0]) for line in done.stdout.splitlines()]
    assert times[0] <= times[1] < moment < times[2]
    # A line has the time of its beginning, and one time alone.
    parts = box.run("printf a; sleep 0.3; printf 'b\\nc\\n\\nd'")
    done = ctl(daemon, "logs", "--timestamps", "--tail", "4", "box", parts.id)
    assert TIME.sub("T ", done.stdout) == "T ab\nT c\nT \nT d"
    first, second, *_ = (
        datetime.fromisoformat(line.split()[0]) for line in done.stdout.split("\n")
    )
    assert second - first > timedelta(seconds=0.2)


def test_logs_of_what_runs_are_what_is_there_now(daemon: Daemon, box: Sandbox) -> None:
    handle = box.run("echo here; sleep 1000", background=True)
    next(iter(handle))
    done = ctl(daemon, "logs", "-t", "box", handle.id)
    assert TIME.sub("T ", done.stdout) == "T here\n"
    handle.kill()


def test_without_times_nothing_is_made_up(daemon: Daemon, box: Sandbox) -> None:
    ended = box.run("echo old")
    [file] = daemon.state.glob(f"sandboxes/*/executions/{ended.id}/*.times")
    file.unlink()
    for argv in (["-t"], ["--since", "1h"]):
        done = ctl(daemon, "logs", *argv, "box", ended.id, code=125)
        assert done.stdout == ""
        assert "[OUTPUT_TIMES_UNKNOWN]" in done.stderr
    assert ctl(daemon, "logs", "box", ended.id).stdout == "old\n"
    [handle] = [one for one in box.executions() if one.id == ended.id]
    with pytest.raises(OutputTimesUnknown):
        list(handle.output())


def test_lists_of_several_states(daemon: Daemon, box: Sandbox) -> None:
    with Sandbox.create("other", socket=daemon.socket) as other:
        other.suspend()
        both = ctl(daemon, "ls", "--ids", "--state", "ready", "--state", "suspended").stdout
        assert set(both.split()) == {box.id, other.id}
        assert ctl(daemon, "ls", "--ids", "--state", "suspended").stdout.split() == [other.id]
    box.run("exit 1")
    box.run("kill $$")
    found = ctl(daemon, "ps", "--status", "signaled", "--status", "OOM_KILLED,EXITED").stdout
    assert {"SIGNALED", "EXITED"} <= set(found.split())
