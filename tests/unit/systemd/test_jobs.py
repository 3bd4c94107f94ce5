# SPDX-License-Identifier: Apache-2.0
"""The waiting itself, with time in milliseconds; tests/integration/test_bus.py has the bus."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sandboxd.errors import BusUnavailable, JobFailed
from sandboxd.systemd.jobs import Jobs, UnitStatus

UNIT = "x.scope"
ACTIVE = UnitStatus(UNIT, "", "loaded", "active", "running", "/")
QUEUED = UnitStatus(UNIT, "", "loaded", "inactive", "dead", "/job/1")
MISSING = UnitStatus(UNIT, "", "not-found", "inactive", "dead", "/")


class Polled:
    """Answers polls one after the other, the last one for ever."""

    def __init__(self, answers: Sequence[UnitStatus | Exception]) -> None:
        self._answers = list(answers)
        self.count = 0

    async def status(self, unit: str) -> UnitStatus:
        assert unit == UNIT
        self.count += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def wait(jobs: Jobs, *, early: str | None = None) -> None:
    with jobs.expect(UNIT) as waiter:
        if early is not None:
            jobs.removed("/job/1", UNIT, early)
        await jobs.wait_done(
            waiter, "/job/1", reached=lambda status: status.is_active, timeout_seconds=5
        )


async def test_result_before_the_job_is_known() -> None:
    polled = Polled([MISSING])
    await wait(Jobs(polled.status), early="done")
    with pytest.raises(JobFailed, match="'canceled'"):
        await wait(Jobs(polled.status), early="canceled")
    assert polled.count == 0


async def test_two_waiters_of_one_unit_get_their_own_results() -> None:
    jobs = Jobs(Polled([QUEUED]).status)
    with jobs.expect(UNIT) as start, jobs.expect(UNIT) as stop:
        jobs.removed("/job/1", UNIT, "canceled")
        jobs.removed("/job/2", UNIT, "done")
        await jobs.wait_done(stop, "/job/2", reached=lambda s: s.is_gone, timeout_seconds=5)
        with pytest.raises(JobFailed, match="'canceled'"):
            await jobs.wait_done(start, "/job/1", reached=lambda s: s.is_active, timeout_seconds=5)


async def test_nothing_is_kept_of_units_nobody_waits_for() -> None:
    jobs = Jobs(Polled([ACTIVE]).status, poll_seconds=0.01)
    jobs.removed("/job/1", UNIT, "failed")
    await wait(jobs)


async def test_poll_survives_a_lost_bus() -> None:
    polled = Polled([BusUnavailable("gone"), QUEUED, BusUnavailable("gone"), ACTIVE])
    await wait(Jobs(polled.status, poll_seconds=0.01))
    assert polled.count == 4


async def test_poll_finds_a_unit_that_did_not_start() -> None:
    with pytest.raises(JobFailed, match="not-found/inactive"):
        await wait(Jobs(Polled([QUEUED, MISSING]).status, poll_seconds=0.01))


async def test_signal_during_the_poll_wins() -> None:
    jobs: Jobs

    async def status(unit: str) -> UnitStatus:
        jobs.removed("/job/1", unit, "done")
        return MISSING

    jobs = Jobs(status, poll_seconds=0.01)
    async with asyncio.timeout(5):
        await wait(jobs)
