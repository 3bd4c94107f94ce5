# SPDX-License-Identifier: Apache-2.0
"""Waits for systemd's jobs.

JobRemoved tells the end of a job and may be handled before the reply that names the job: so a
waiter is registered by the unit's name before the call is sent, and keeps every result for the unit
until the job's path is known. A signal may also be lost with the connection: a poll of the unit is
the second witness, so that a lost signal only delays the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandboxd.errors import BusUnavailable, JobFailed, OperationTimedOut

_DONE = "done"


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """A unit as systemd reports it; `job_path` is "/" where no job is queued for the unit."""

    name: str
    description: str
    load_state: str
    active_state: str
    sub_state: str
    job_path: str

    @property
    def is_active(self) -> bool:
        """Whether the unit is loaded and active."""
        return self.load_state == "loaded" and self.active_state == "active"

    @property
    def is_gone(self) -> bool:
        """Whether no process of the unit runs."""
        return self.load_state == "not-found" or self.active_state in ("inactive", "failed")


class JobWaiter:
    """An expected job of a unit."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.results: dict[str, str] = {}
        self.heard = asyncio.Event()


class Jobs:
    """All jobs that this daemon waits for."""

    def __init__(
        self,
        status: Callable[[str], Awaitable[UnitStatus]],
        *,
        poll_seconds: float = 2.0,
    ) -> None:
        self._status = status
        self._poll_seconds = poll_seconds
        self._waiters: dict[str, list[JobWaiter]] = {}

    def removed(self, job_path: str, unit: str, result: str) -> None:
        """Take a JobRemoved signal."""
        for waiter in self._waiters.get(unit, ()):
            waiter.results[job_path] = result
            waiter.heard.set()

    @contextmanager
    def expect(self, unit: str) -> Iterator[JobWaiter]:
        """Keep the results of the unit's jobs from now on."""
        waiter = JobWaiter(unit)
        self._waiters.setdefault(unit, []).append(waiter)
        try:
            yield waiter
        finally:
            self._waiters[unit].remove(waiter)
            if not self._waiters[unit]:
                del self._waiters[unit]

    async def wait_done(
        self,
        waiter: JobWaiter,
        job_path: str,
        *,
        reached: Callable[[UnitStatus], bool],
        timeout_seconds: float,
    ) -> None:
        """Return when the job ended as `done`.

        reached: whether a unit without this job is in the state that the job leads to. Raises
        JobFailed, OperationTimedOut.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                result = await self._result(waiter, job_path, reached)
        except TimeoutError as exc:
            raise OperationTimedOut(
                f"cannot start or stop {waiter.unit}: its job did not end in "
                f"{timeout_seconds:g} seconds",
                details={"unit": waiter.unit},
            ) from exc
        if result != _DONE:
            raise JobFailed(waiter.unit, result)

    async def _result(
        self, waiter: JobWaiter, job_path: str, reached: Callable[[UnitStatus], bool]
    ) -> str:
        while job_path not in waiter.results:
            waiter.heard.clear()
            try:
                async with asyncio.timeout(self._poll_seconds):
                    await waiter.heard.wait()
            except TimeoutError:
                polled = await self._poll(waiter.unit, job_path, reached)
                if polled is not None and job_path not in waiter.results:
                    return polled
        return waiter.results[job_path]

    async def _poll(
        self, unit: str, job_path: str, reached: Callable[[UnitStatus], bool]
    ) -> str | None:
        try:
            status = await self._status(unit)
        except (BusUnavailable, OperationTimedOut):
            # The job goes on without a connection; the next poll connects again.
            return None
        if status.job_path == job_path:
            return None
        if reached(status):
            return _DONE
        return f"unknown, the unit is {status.load_state}/{status.active_state}"
