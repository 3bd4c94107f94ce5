# SPDX-License-Identifier: Apache-2.0
"""Reports from the daemon's answers, in bounded memory: POINTS points, the largest executions."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from sandboxd.client.calls import RUNNING, Client, JsonObject
from sandboxd.errors import NotFound

POINTS = 180
TOP = 10


@dataclass(slots=True)
class Consumer:
    """Usage of the executions of one sandbox, running ones included, as far as records are kept."""

    sandbox_id: str
    name: str | None = None
    executions: int = 0
    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A report. points, owners: as in GET /v1/history. executions: answers, largest first.

    codes: error codes of executions with a kept record; records: the number of such executions.
    """

    since: datetime
    until: datetime
    known_since: datetime
    interval_seconds: float
    host: JsonObject
    points: list[JsonObject]
    owners: list[JsonObject]
    by_cpu: list[JsonObject]
    by_memory: list[JsonObject]
    sandboxes: list[Consumer]
    codes: Counter[str]
    records: int
    running: int

    @property
    def ended(self) -> Counter[str]:
        """Number of ended executions, by status."""
        return _sum(self.owners, "ended")

    @property
    def refused(self) -> Counter[str]:
        """Number of error answers, by code."""
        return _sum(self.owners, "refused")

    def total(self, name: str) -> float | None:
        """Return the sum over owners; None if every value is unknown."""
        if not self.owners:
            return 0
        told = [owner[name] for owner in self.owners if owner[name] is not None]
        return sum(told) if told else None

    def highest(self, name: str) -> float | None:
        """Return the maximum over points; None if every value is unknown."""
        if not self.points:
            return 0
        return max((one[name] for one in self.points if one[name] is not None), default=None)


def gather(client: Client, since: datetime, until: datetime) -> Report:
    """Return the report on the time from `since` until `until`."""
    history = client.history(since.isoformat(), until.isoformat(), POINTS)
    seen = _Seen(since, until)
    for execution in _running(client):
        seen.add_running(execution)
    for execution in client.list_executions(ended_after=since.isoformat()):
        seen.add(execution)
    sandboxes = _largest(seen.sandboxes.values())
    for consumer in sandboxes:
        consumer.name = _name(client, consumer.sandbox_id)
    return Report(
        since=_time(history["since"]),
        until=_time(history["until"]),
        known_since=_time(history["known_since"]),
        interval_seconds=history["interval_seconds"],
        host=client.host(),
        points=history["points"],
        owners=sorted(history["owners"], key=lambda one: one["cpu_seconds"] or 0.0, reverse=True),
        by_cpu=seen.by_cpu.largest(),
        by_memory=seen.by_memory.largest(),
        sandboxes=sandboxes,
        codes=seen.codes,
        records=seen.records,
        running=seen.running,
    )


def _running(client: Client) -> Iterator[JsonObject]:
    """Iterate over running executions, with the usage so far."""
    used: dict[str, JsonObject] = {}
    for execution in client.list_executions(status=",".join(RUNNING)):
        place, identity = execution["sandbox_id"], execution["id"]
        # An execution that ended after the listing is counted among the ended ones.
        with suppress(NotFound):
            if place not in used:
                used[place] = client.metrics(place, by_execution=True)["by_execution"]
            if (now := used[place].get(identity)) is not None:
                usage = {
                    **execution["usage"],
                    "cpu_seconds": now["cpu"]["seconds"],
                    "memory_peak_bytes": now["memory"]["peak_bytes"],
                }
                yield {**execution, "usage": usage}
            else:
                yield execution


def _name(client: Client, sandbox_id: str) -> str | None:
    try:
        name: str | None = client.get_sandbox(sandbox_id)["name"]
    except NotFound:
        # The sandbox's record was removed before the records of its executions.
        return None
    return name


def plain(report: Report) -> dict[str, Any]:
    """Return a report as a JSON object."""
    found = {name.name: getattr(report, name.name) for name in fields(report)}
    sandboxes = [asdict(one) for one in report.sandboxes]
    more = {"ended": dict(report.ended), "refused": dict(report.refused), "sandboxes": sandboxes}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in {**found, **more}.items()
    }


class _Largest:
    """The TOP largest of a sequence, in bounded memory."""

    def __init__(self, size: Callable[[JsonObject], float | None]) -> None:
        self._size = size
        self._heap: list[tuple[float, int, JsonObject]] = []
        self._number = 0

    def add(self, one: JsonObject) -> None:
        size = self._size(one)
        if not size:
            return
        self._number += 1
        entry = (size, -self._number, one)
        if len(self._heap) < TOP:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def largest(self) -> list[JsonObject]:
        return [one for _, _, one in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


@dataclass(slots=True)
class _Seen:
    """Sums over the executions of a period."""

    since: datetime
    until: datetime
    by_cpu: _Largest = field(default_factory=lambda: _Largest(_used("cpu_seconds")))
    by_memory: _Largest = field(default_factory=lambda: _Largest(_used("memory_peak_bytes")))
    sandboxes: dict[str, Consumer] = field(default_factory=dict)
    codes: Counter[str] = field(default_factory=Counter)
    records: int = 0
    running: int = 0

    def add(self, execution: JsonObject) -> None:
        """Add an ended execution, if the end is within the period."""
        ended = execution["finished_at"]
        if ended is None or not self.since <= _time(ended) < self.until:
            return
        self.records += 1
        if execution["error_code"]:
            self.codes[execution["error_code"]] += 1
        self._count(execution)

    def add_running(self, execution: JsonObject) -> None:
        """Add a running execution; the usage may include time before the period."""
        if _time(execution["created_at"]) < self.until:
            self.running += 1
            self._count(execution)

    def _count(self, execution: JsonObject) -> None:
        self.by_cpu.add(execution)
        self.by_memory.add(execution)
        identity = execution["sandbox_id"]
        consumer = self.sandboxes.setdefault(identity, Consumer(identity))
        usage = execution["usage"]
        consumer.executions += 1
        consumer.cpu_seconds += usage["cpu_seconds"] or 0.0
        peak = usage["memory_peak_bytes"] or 0
        consumer.memory_peak_bytes = max(consumer.memory_peak_bytes, peak)


def _used(name: str) -> Callable[[JsonObject], float | None]:
    def size(execution: JsonObject) -> float | None:
        value: float | None = execution["usage"][name]
        return value

    return size


def _largest(consumers: Iterable[Consumer]) -> list[Consumer]:
    return heapq.nlargest(TOP, consumers, key=lambda one: (one.cpu_seconds, one.executions))


def _sum(owners: list[JsonObject], name: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for owner in owners:
        total.update(owner[name])
    return total


def _time(text: Any) -> datetime:
    return datetime.fromisoformat(str(text)).astimezone(UTC)
