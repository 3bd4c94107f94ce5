# SPDX-License-Identifier: Apache-2.0
"""From metrics to rates, bars and rows, with whatever a host cannot know left open."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxd.ctl import usage_table
from sandboxd.ctl.samples import Sample, Sampler

UNKNOWN: dict[str, Any] = {
    "memory": {"current_bytes": None}, "cpu": {"seconds": None}, "pids": {"current": None},
    "io": {"read_bytes": None, "written_bytes": None}, "disk": {"used_bytes": None},
    "pressure": None, "executions": {"running": 0, "total": 0},
}  # fmt: skip


def sandbox(name: str) -> dict[str, Any]:
    limits = {"memory_bytes": 100 << 20, "cpus": 2.0, "pids": 64}
    return {"id": name * 12, "name": name, "state": "ready", "limits": limits}


def metrics(cpu: float, memory: int, read: int = 0) -> dict[str, Any]:
    return {
        "memory": {"current_bytes": memory}, "cpu": {"seconds": cpu}, "pids": {"current": 3},
        "io": {"read_bytes": read, "written_bytes": 0}, "disk": {"used_bytes": 4096},
        "pressure": {"cpu": {"some_avg10_percent": 12.0}, "memory": {"some_avg10_percent": 0.5}},
        "executions": {"running": 1, "total": 2},
    }  # fmt: skip


class Fake:
    """A daemon with two sandboxes, asked at moments of the test's choice."""

    def __init__(self) -> None:
        self.now: dict[str, dict[str, Any]] = {}

    def list_sandboxes(self) -> list[dict[str, Any]]:
        return [sandbox(name) for name in "ab"]

    def metrics(self, ref: str) -> dict[str, Any]:
        return self.now[ref[0]]


def test_rates_are_between_two_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, clock = Fake(), [10.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    sampler = Sampler(fake, [])  # type: ignore[arg-type]
    fake.now = {"a": metrics(5.0, 1 << 20), "b": UNKNOWN}
    assert [sample.cpu_cores for sample in sampler.sample()] == [None, None]
    clock[0] = 12.0
    fake.now = {"a": metrics(8.0, 50 << 20, read=4 << 20), "b": UNKNOWN}
    a, b = sampler.sample()
    assert (a.cpu_cores, a.read_rate, a.write_rate, a.memory_share) == (1.5, 2 << 20, 0.0, 0.5)
    assert (b.cpu_cores, b.read_rate, b.memory_share, b.pressure("cpu")) == (None,) * 4
    header, first, second = usage_table.rows([b, a], "cpu")
    assert len(header) == len(first) == len(second)
    assert first[1:7] == ("a", "ready", "1.50/2", "50 MiB/100 MiB", "[#####.....]  50%", "3/64")
    assert first[10] == "12/0/?"
    assert second[3:7] == ("?/2", "?/100 MiB", "?", "?/64")


@pytest.mark.parametrize("order", usage_table.ORDERS)
def test_every_order_puts_the_largest_first(order: str) -> None:
    large, small = metrics(1.0, 9 << 20), metrics(1.0, 1 << 20)
    large["pids"]["current"], large["disk"]["used_bytes"] = 9, 1 << 30
    found = [
        Sample(0.0, sandbox("s"), small, cpu_cores=0.1, read_rate=1.0),
        Sample(0.0, sandbox("l"), large, cpu_cores=0.9, read_rate=9.0),
        Sample(0.0, sandbox("u"), UNKNOWN),
    ]
    assert [row[1] for row in usage_table.rows(found, order)] == ["NAME", "l", "s", "u"]


def test_a_bar_stays_within_its_frame() -> None:
    assert usage_table.bar(0.0) == "[..........]   0%"
    assert usage_table.bar(1.7) == "[##########] 170%"
