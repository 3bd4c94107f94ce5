# SPDX-License-Identifier: Apache-2.0
"""Samples of the usage of sandboxes and executions; two samples give a rate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from sandboxd.client.calls import RUNNING, Client, JsonObject
from sandboxd.ctl.owners import LIVE
from sandboxd.errors import NotFound


@dataclass(frozen=True, slots=True)
class Sample:
    """The usage of a sandbox or execution at one monotonic time; None = unknown on this host."""

    at: float
    subject: JsonObject
    metrics: dict[str, Any]
    cpu_cores: float | None = None
    read_rate: float | None = None
    write_rate: float | None = None

    @property
    def memory_share(self) -> float | None:
        """Used memory as a share of the limit."""
        used = self.metrics["memory"]["current_bytes"]
        return None if used is None else used / self.subject["limits"]["memory_bytes"]

    def pressure(self, resource: str) -> float | None:
        """Return the percentage of the last ten seconds in which a task waited for `resource`."""
        pressure = self.metrics["pressure"] or {}
        if resource not in pressure:
            return None
        percent: float = pressure[resource]["some_avg10_percent"]
        return percent


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of one time. executions: the running executions with known usage."""

    sandboxes: list[Sample]
    executions: list[Sample] = field(default_factory=list)


class Sampler:
    """A sampler of sandboxes, and on demand of running executions, with rates between samples."""

    def __init__(self, client: Client, wanted: list[str], *, by_execution: bool = False) -> None:
        self._client = client
        self._wanted = wanted
        self._by_execution = by_execution
        self._before: dict[str, Sample] = {}

    def sample(self) -> Samples:
        """Sample all sandboxes and executions, with rates since the previous call."""
        sandboxes = [self._with_rates(sample) for sample in self._ask()]
        executions: list[Sample] = []
        if self._by_execution:
            executions = [self._with_rates(one) for one in self._running(sandboxes)]
        self._before = {_key(sample): sample for sample in (*sandboxes, *executions)}
        return Samples(sandboxes, executions)

    def _ask(self) -> Iterator[Sample]:
        if self._wanted:
            sandboxes = [self._client.get_sandbox(ref) for ref in self._wanted]
        else:
            sandboxes = list(self._client.list_sandboxes(state=LIVE))
        for sandbox in sandboxes:
            try:
                metrics = self._client.metrics(sandbox["id"], by_execution=self._by_execution)
            except NotFound:
                # Its record was removed after the listing.
                continue
            yield Sample(time.monotonic(), sandbox, metrics)

    def _running(self, sandboxes: list[Sample]) -> Iterator[Sample]:
        of = {sample.subject["id"]: sample for sample in sandboxes}
        for execution in self._client.list_executions(status=RUNNING[1]):
            sample = of.get(execution["sandbox_id"])
            used = None if sample is None else sample.metrics["by_execution"].get(execution["id"])
            if sample is not None and used is not None:
                yield Sample(sample.at, execution, used)

    def _with_rates(self, sample: Sample) -> Sample:
        before = self._before.get(_key(sample))
        if before is None:
            return sample
        return replace(
            sample,
            cpu_cores=_rate(before, sample, "cpu", "seconds"),
            read_rate=_rate(before, sample, "io", "read_bytes"),
            write_rate=_rate(before, sample, "io", "written_bytes"),
        )


class Ended:
    """The last executions that ended, newest first, at most `count`."""

    def __init__(self, client: Client, count: int) -> None:
        self._client = client
        self._count = count
        self._found: dict[tuple[str, str], JsonObject] = {}
        self._after: str | None = None

    def look(self) -> list[JsonObject]:
        """Return the executions known now; only new ones are requested."""
        filters = {} if self._after is None else {"ended_after": self._after}
        for execution in self._client.list_executions(**filters):
            ended: str | None = execution["finished_at"]
            if ended is not None and execution["status"] not in RUNNING:
                self._found[execution["sandbox_id"], execution["id"]] = execution
                self._after = max(self._after or "", ended)
        newest = sorted(self._found.items(), key=lambda item: item[1]["finished_at"], reverse=True)
        self._found = dict(newest[: self._count])
        return list(self._found.values())


def _key(sample: Sample) -> str:
    subject = sample.subject
    return f"{subject.get('sandbox_id', '')} {subject['id']}"


def _rate(before: Sample, now: Sample, group: str, name: str) -> float | None:
    old, new = before.metrics[group][name], now.metrics[group][name]
    seconds = now.at - before.at
    if old is None or new is None or seconds <= 0:
        return None
    rate: float = max(0.0, (new - old) / seconds)
    return rate
