# SPDX-License-Identifier: Apache-2.0
"""Input over restarts of the daemon: each byte once, or the word that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sandboxd.client import feeding
from sandboxd.client.blocking import finish
from sandboxd.client.refusals import ConnectionLost, DaemonUnreachable, closed
from sandboxd.client.request import RESTART_SECONDS, Request
from sandboxd.errors import Draining, ExecutionFinished, QuotaExceeded

AWHILE = 3 * RESTART_SECONDS


class Daemon:
    """One that answers each request by the next of `answers`. Fits Flows.

    Before an error other than DaemonUnreachable the whole body is received, but `written_bytes` of
    it are the program's. A float before the error: the seconds that the request takes.
    """

    def __init__(self, *answers: Any) -> None:
        self.now = 1000.0
        self.got = b""
        self._answers = list(answers)
        self.waits = self

    async def ask(self, request: Request) -> None:
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, DaemonUnreachable):
            raise answer
        assert request.source is not None
        received = b"".join(request.source)
        if isinstance(answer, tuple):
            seconds, answer = answer
            self.now += seconds
        if answer is None:
            self.got += received
            return
        self.got += received[: answer.details.get("written_bytes", 0)]
        raise answer

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def stopping(written: int) -> Draining:
    return Draining("stopping", details={"written_bytes": written})


def unreachable() -> DaemonUnreachable:
    return DaemonUnreachable("/nowhere", 2)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr("sandboxd.client.request.time", clock)
    return clock


def send(daemon: Daemon, clock: SimpleNamespace, *pieces: bytes) -> None:
    clock.monotonic = lambda: daemon.now
    flows: Any = daemon
    finish(feeding.send(flows, "box", "one", iter(pieces)))


@pytest.mark.parametrize("taken", range(7))
def test_the_next_daemon_gets_what_the_stopping_one_did_not_take(
    clock: SimpleNamespace, taken: int
) -> None:
    daemon = Daemon(stopping(taken), unreachable(), unreachable(), None)
    send(daemon, clock, b"abc", b"def")
    assert daemon.got == b"abcdef"


def test_it_goes_on_over_several_restarts_however_late_they_come(clock: SimpleNamespace) -> None:
    daemon = Daemon(
        unreachable(), (AWHILE, stopping(1)), unreachable(), (AWHILE, stopping(2)), unreachable()
    )
    send(daemon, clock, b"abc", b"def")
    assert daemon.got == b"abcdef"


def test_pieces_not_asked_for_yet_are_for_the_next_daemon(clock: SimpleNamespace) -> None:
    """The connection broke before the last piece was there."""
    broken = stopping(2)

    class Breaking(Daemon):
        async def ask(self, request: Request) -> None:
            if not self.got:
                source: Any = request.source
                self.got += next(source)[:2]
                raise broken
            await super().ask(request)

    daemon = Breaking()
    send(daemon, clock, b"abc", b"def")
    assert daemon.got == b"abcdef"


def test_a_full_quota_is_waited_out(clock: SimpleNamespace) -> None:
    full = QuotaExceeded("too many streams", details={"written_bytes": 0})
    daemon = Daemon(full, full, None)
    send(daemon, clock, b"abc")
    assert daemon.got == b"abc"


@pytest.mark.parametrize("error", [closed(), Draining("stopping")])
def test_nothing_is_sent_again_of_which_nobody_knows_the_fate(
    clock: SimpleNamespace, error: Exception
) -> None:
    daemon = Daemon(error, None)
    with pytest.raises(ConnectionLost, match="how much input the program got"):
        send(daemon, clock, b"abc")
    assert daemon.got == b""


def test_a_daemon_that_stays_away_is_told(clock: SimpleNamespace) -> None:
    daemon = Daemon(*[unreachable() for _ in range(1000)])
    with pytest.raises(DaemonUnreachable):
        send(daemon, clock, b"abc")
    assert daemon.now == pytest.approx(1000 + RESTART_SECONDS, abs=1.0)


def test_the_program_s_end_is_told(clock: SimpleNamespace) -> None:
    with pytest.raises(ExecutionFinished):
        send(Daemon(ExecutionFinished("over")), clock, b"abc")


def test_a_kill_reaches_the_next_daemon() -> None:
    asked = []

    async def over_restarts(attempt: Any) -> None:
        await attempt()

    async def ask(request: Request) -> None:
        asked.append(request.path)
        raise ExecutionFinished("over")

    flows: Any = SimpleNamespace(over_restarts=over_restarts, ask=ask)
    finish(feeding.kill(flows, "box", "one"))
    assert asked == ["/v1/sandboxes/box/executions/one/kill"]


def test_pieces_are_taken_as_they_come(clock: SimpleNamespace) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"abc"
        assert not daemon.got
        yield b"def"

    daemon = Daemon()
    flows: Any = daemon
    finish(feeding.send(flows, "box", "one", pieces()))
    assert daemon.got == b"abcdef"
