# SPDX-License-Identifier: Apache-2.0
"""GET /v1/history: usage, ends of executions and refusals over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from sandboxd.core.totals import OTHERS, Period, UsageTotals
from sandboxd.wire.answers import Answer
from sandboxd.wire.queries import Moment, whole_number
from sandboxd.wire.requests import Request

_DEFAULT = timedelta(hours=1)
_LONGEST = timedelta(days=31)
MAX_POINTS = 1440


class HistoryQuery(Request):
    """GET /v1/history."""

    since: Moment | None = None
    """An RFC 3339 time; default: an hour before `until`."""
    until: Moment | None = None
    """An RFC 3339 time; default: now."""
    points: Annotated[int, whole_number(1, MAX_POINTS), Field(description="at most so many")] = 240

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.since and self.until and not self.since < self.until:
            raise ValueError("since must be before until")
        return self

    def bounds(self, now: datetime) -> tuple[datetime, datetime]:
        """Return begin and end of the period, at most 31 days apart, in UTC."""
        until = (self.until or now).astimezone(UTC)
        since = (self.since or until - _DEFAULT).astimezone(UTC)
        return max(min(since, until), until - _LONGEST), until


class UsageTotalsAnswer(Answer):
    """Usage totals over a time; null where unknown.

    executions: the most at once. memory_bytes: the most at any measurement, or in one execution's
    peak. Remaining fields: sums over the whole time.
    """

    executions: int
    memory_bytes: int | None
    cpu_seconds: float | None
    io_read_bytes: int | None
    io_written_bytes: int | None
    ended: dict[str, int] = Field(description="executions by status")
    refused: dict[str, int] = Field(description="errors answered, by code")


class PointAnswer(UsageTotalsAnswer):
    """The totals from `at` on, for `interval_seconds`."""

    at: datetime


class OwnerAnswer(UsageTotalsAnswer):
    """The totals of an owner; `owner_uid` null: all owners beyond the number kept apart."""

    owner_uid: int | None


class HistoryAnswer(Answer):
    """The history of a period, without empty points; unknown before `known_since`."""

    since: datetime
    until: datetime
    known_since: datetime
    interval_seconds: float
    points: list[PointAnswer]
    owners: list[OwnerAnswer]

    @classmethod
    def of(cls, period: Period) -> HistoryAnswer:
        """Return the answer about `period`."""
        return cls(
            since=period.since,
            until=period.until,
            known_since=period.known_since,
            interval_seconds=period.interval_seconds,
            points=[PointAnswer(at=at, **_totals(totals)) for at, totals in period.points],
            owners=[
                OwnerAnswer(owner_uid=None if uid == OTHERS else uid, **_totals(totals))
                for uid, totals in sorted(period.by_owner.items())
            ],
        )


def _totals(totals: UsageTotals) -> dict[str, Any]:
    return UsageTotalsAnswer.model_validate(totals).model_dump()
