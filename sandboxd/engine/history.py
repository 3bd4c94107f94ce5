# SPDX-License-Identifier: Apache-2.0
"""Usage, ends and refusals by minute and owner: bounded, kept across restarts.

A closed minute is saved together with the counted usage of each running execution, so that the next
daemon counts exactly the usage since then. A killed daemon loses the last, unsaved minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandboxd.core.model import Caller, Execution, SandboxUsage, Usage
from sandboxd.core.totals import GAINS, Counted, Interval, Period, SavedHistory, UsageTotals
from sandboxd.engine.ports.host import Clock

INTERVAL_SECONDS = 60.0
KEPT_INTERVALS = 1440
_SPARE_COUNTS = 1000
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """The history at a moment; immutable, so that a thread may sum up for seconds."""

    now: datetime
    known_since: datetime
    _intervals: list[Interval]

    def period(self, caller: Caller, since: datetime, until: datetime, points: int) -> Period:
        """Return the part that `caller` may see, in at most `points` points, none empty."""
        minutes = max(1.0, (until - since).total_seconds() / INTERVAL_SECONDS)
        width = INTERVAL_SECONDS * -(-minutes // points)
        found: dict[int, UsageTotals] = {}
        by_owner: dict[int, UsageTotals] = {}
        for interval in self._intervals:
            last = interval.begun + timedelta(seconds=INTERVAL_SECONDS)
            if last <= since or interval.begun >= until or since >= until:
                continue
            seen = [(u, s) for u, s in interval.by_owner.items() if caller.may_see(u)]
            for uid, totals in seen:
                by_owner.setdefault(uid, UsageTotals()).add(totals, beside=False)
            if seen:
                place = max(0, int((interval.begun - since).total_seconds() // width))
                found.setdefault(place, UsageTotals()).add(
                    _together(s for _, s in seen), beside=False
                )
        dated = [
            (since + timedelta(seconds=n * width), totals) for n, totals in sorted(found.items())
        ]
        return Period(since, until, self.known_since, width, dated, by_owner)


class History:
    """Collects ends, refusals and periodic samples of usage."""

    def __init__(self, clock: Clock, *, kept: int = KEPT_INTERVALS) -> None:
        self._clock = clock
        self._begun = clock.now()
        self.sampled_monotonic = clock.monotonic()
        self._begun_monotonic = clock.monotonic()
        self._open = Interval(self._begun)
        self._closed: deque[Interval] = deque(maxlen=kept)
        self._unsaved: deque[Interval] = deque(maxlen=kept)
        # The value of `_counted` at the end of the last unsaved interval.
        self._counted_then: Counted = {}
        # Usage of each running execution that the sums contain already.
        self._counted: dict[_Key, tuple[float, ...]] = {}
        self._running: dict[int, set[_Key]] = {}

    @property
    def known_since(self) -> datetime:
        """Start of the recorded time."""
        is_full = len(self._closed) == self._closed.maxlen
        return self._closed[0].begun if is_full else self._begun

    def restore(self, past: SavedHistory) -> None:
        """Load the history of an earlier daemon; call before any count."""
        self._begun = past.known_since
        self._closed.extend(past.intervals)
        self._counted = {key: tuple(values) for key, values in past.counted.items()}

    def unsaved(self) -> SavedHistory | None:
        """Return the closed intervals that are not `saved`; None if empty."""
        self._now()
        if not self._unsaved:
            return None
        return SavedHistory(self.known_since, list(self._unsaved), self._counted_then)

    def saved(self, past: SavedHistory) -> None:
        """Drop the intervals of `past` from the unsaved ones."""
        for interval in past.intervals:
            if self._unsaved and self._unsaved[0] is interval:
                self._unsaved.popleft()

    def close(self) -> None:
        """Close the present interval, so that `unsaved` includes the interval."""
        self._close_interval()

    def started(self, owner_uid: int, execution: Execution) -> None:
        """Count the start of an execution."""
        running = self._running.setdefault(owner_uid, set())
        running.add(_key(execution))
        # Usage before the start is zero, whatever the age by the wall clock.
        self._counted.setdefault(_key(execution), (0.0,) * len(GAINS))
        self._now().owner(owner_uid).saw(len(running), None)

    def ended(self, owner_uid: int, execution: Execution) -> None:
        """Count the end of an execution, with the usage since the last sample."""
        totals = self._now().owner(owner_uid)
        totals.ended[execution.outcome.status] += 1
        running = self._running.get(owner_uid, set())
        # A lower bound: the execution ran, with this peak.
        totals.saw(max(1, len(running)), execution.usage.memory_peak_bytes)
        running.discard(_key(execution))
        if not running:
            self._running.pop(owner_uid, None)
        self._count(totals, execution, execution.usage)
        self._counted.pop(_key(execution), None)

    def refused(self, uid: int, code: str) -> None:
        """Count an error answer."""
        self._now().owner(uid).refused[code] += 1

    def sample(self, running: Collection[tuple[int, Execution, SandboxUsage]]) -> None:
        """Count the usage of all running executions: owner, execution, usage."""
        interval = self._now()
        self.sampled_monotonic = self._clock.monotonic()
        self._forget_gone({_key(execution) for _, execution, _ in running})
        memory: dict[int, list[int | None]] = {}
        for uid, execution, used in running:
            if execution.is_finished:
                # Finished during the sample; `ended` counts the usage.
                continue
            self._count(interval.owner(uid), execution, used)
            memory.setdefault(uid, []).append(used.memory_bytes)
            self._running.setdefault(uid, set()).add(_key(execution))
        for uid, sizes in memory.items():
            told = [size for size in sizes if size is not None]
            at_once = max(len(sizes), len(self._running[uid]))
            interval.owner(uid).saw(at_once, sum(told) if told else None)

    def snapshot(self) -> HistorySnapshot:
        """Return the history until now."""
        self._now()
        begun = {uid: _together([totals]) for uid, totals in self._open.by_owner.items()}
        intervals = [*self._closed, Interval(self._open.begun, begun)]
        now = self._clock.now()
        # A clock set back may place the start in the future.
        return HistorySnapshot(now, min(self.known_since, now), intervals)

    def _forget_gone(self, running: set[_Key]) -> None:
        """Drop counts of executions without a reported end; late, as an end may be to come."""
        if len(self._counted) > 2 * len(running) + _SPARE_COUNTS:
            self._counted = {key: was for key, was in self._counted.items() if key in running}

    def _now(self) -> Interval:
        """Return the interval of this moment."""
        now = self._clock.monotonic()
        if now - self._begun_monotonic >= INTERVAL_SECONDS:
            self._close_interval()
            self._begun_monotonic = now
        return self._open

    def _close_interval(self) -> None:
        if self._open.by_owner:
            self._closed.append(self._open)
            self._unsaved.append(self._open)
            # Includes adopted executions without a sample.
            self._counted_then = dict(self._counted)
        self._open = Interval(self._clock.now())

    def _count(self, totals: UsageTotals, execution: Execution, used: Usage | SandboxUsage) -> None:
        """Add the usage since the last count."""
        key = _key(execution)
        now = tuple(getattr(used, name) for name in GAINS)
        before = self._counted.get(key)
        if before is None:
            is_older = execution.created_at < self._begun
            before = tuple((value or 0) if is_older else 0 for value in now)
        for name, value, counted in zip(GAINS, now, before, strict=True):
            totals.gain(name, None if value is None else value - counted)
        kept = zip(now, before, strict=True)
        self._counted[key] = tuple(max(value or 0, counted) for value, counted in kept)


def _key(execution: Execution) -> _Key:
    return (execution.sandbox_id, execution.id)


def _together(parts: Iterable[UsageTotals]) -> UsageTotals:
    whole = UsageTotals()
    for part in parts:
        whole.add(part, beside=True)
    return whole
