# SPDX-License-Identifier: Apache-2.0
"""What sandboxes use, sampled: two samples of a sandbox give its rates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sandboxd.client.calls import RUNNING, Answer, Client
from sandboxd.errors import NotFound

_LIVE = ("ready", "suspended", "releasing")


@dataclass(frozen=True, slots=True)
class Sample:
    """One sandbox at one moment; `at` is monotonic, None = this host cannot know."""

    at: float
    sandbox: Answer
    metrics: dict[str, Any]
    cpu_cores: float | None = None
    read_rate: float | None = None
    write_rate: float | None = None

    @property
    def memory_share(self) -> float | None:
        """Used memory as a share of the limit."""
        used = self.metrics["memory"]["current_bytes"]
        return None if used is None else used / self.sandbox["limits"]["memory_bytes"]

    def pressure(self, resource: str) -> float | None:
        """The percentage of the last ten seconds in which somebody waited for it."""
        pressure = self.metrics["pressure"] or {}
        if resource not in pressure:
            return None
        percent: float = pressure[resource]["some_avg10_percent"]
        return percent


class Sampler:
    """Asks for all sandboxes again and again."""

    def __init__(self, client: Client, wanted: list[str]) -> None:
        self._client = client
        self._wanted = wanted
        self._before: dict[str, Sample] = {}

    def sample(self) -> list[Sample]:
        """All of them now, with rates since the last time."""
        now = [self._with_rates(sample) for sample in self._ask()]
        self._before = {sample.sandbox["id"]: sample for sample in now}
        return now

    def _ask(self) -> Iterator[Sample]:
        if self._wanted:
            sandboxes = [self._client.get_sandbox(ref) for ref in self._wanted]
        else:
            sandboxes = [one for one in self._client.list_sandboxes() if one["state"] in _LIVE]
        for sandbox in sandboxes:
            try:
                metrics = self._client.metrics(sandbox["id"])
            except NotFound:
                # Forgotten since it was listed.
                continue
            yield Sample(time.monotonic(), sandbox, metrics)

    def _with_rates(self, sample: Sample) -> Sample:
        before = self._before.get(sample.sandbox["id"])
        if before is None:
            return sample
        return Sample(
            sample.at,
            sample.sandbox,
            sample.metrics,
            cpu_cores=_rate(before, sample, "cpu", "seconds"),
            read_rate=_rate(before, sample, "io", "read_bytes"),
            write_rate=_rate(before, sample, "io", "written_bytes"),
        )


def _rate(before: Sample, now: Sample, group: str, name: str) -> float | None:
    old, new = before.metrics[group][name], now.metrics[group][name]
    seconds = now.at - before.at
    if old is None or new is None or seconds <= 0:
        return None
    rate: float = max(0.0, (new - old) / seconds)
    return rate


def newest_executions(client: Client, count: int) -> list[Answer]:
    """The running ones, then those that ended last, at most `count` in all."""
    running: list[Answer] = []
    ended: list[Answer] = []
    for execution in client.list_executions():
        (running if execution["status"] in RUNNING else ended).append(execution)
    ended.sort(key=lambda execution: str(execution["finished_at"]), reverse=True)
    return [*running, *ended][:count]
