# SPDX-License-Identifier: Apache-2.0
"""From metrics to rates, bars and rows, with whatever a host cannot know left open."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxd.ctl import usage_table
from sandboxd.ctl.commands.top import parts
from sandboxd.ctl.samples import Ended, Sample, Sampler, Samples

UNKNOWN: dict[str, Any] = {
    "memory": {"current_bytes": None}, "cpu": {"seconds": None}, "pids": {"current": None},
    "io": {"read_bytes": None, "written_bytes": None}, "disk": {"used_bytes": None},
    "pressure": None, "executions": {"running": 0, "total": 0},
}  # fmt: skip


EXECUTION: dict[str, Any] = {
    "id": "x" * 12, "sandbox_id": "a" * 12, "status": "RUNNING", "argv": ["sleep", "9"],
    "created_at": "2026-01-02T03:04:05Z", "finished_at": None,
    "limits": {"memory_bytes": 10 << 20, "cpus": 0.5, "pids": 7},
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
        self.listed: list[dict[str, Any]] = []
        self.asked: list[dict[str, object]] = []

    def list_sandboxes(self, **_filters: object) -> list[dict[str, Any]]:
        return [sandbox(name) for name in "ab"]

    def metrics(self, ref: str, *, by_execution: bool = False) -> dict[str, Any]:
        each = {EXECUTION["id"]: self.now.get("x")} if ref[0] == "a" else {}
        return {**self.now[ref[0]], "by_execution": each if by_execution else None}

    def list_executions(self, **filters: object) -> list[dict[str, Any]]:
        self.asked.append(filters)
        return self.listed


def test_rates_are_between_two_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, clock = Fake(), [10.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    sampler = Sampler(fake, [])  # type: ignore[arg-type]
    fake.now = {"a": metrics(5.0, 1 << 20), "b": UNKNOWN}
    assert [sample.cpu_cores for sample in sampler.sample().sandboxes] == [None, None]
    clock[0] = 12.0
    fake.now = {"a": metrics(8.0, 50 << 20, read=4 << 20), "b": UNKNOWN}
    a, b = sampler.sample().sandboxes
    assert (a.cpu_cores, a.read_rate, a.write_rate, a.memory_share) == (1.5, 2 << 20, 0.0, 0.5)
    assert (b.cpu_cores, b.read_rate, b.memory_share, b.pressure("cpu")) == (None,) * 4
    header, first, second = usage_table.rows([b, a], "cpu")
    assert len(header) == len(first) == len(second)
    assert first[1:7] == ("a", "ready", "1.50/2", "50 MiB/100 MiB", "[#####.....]  50%", "3/64")
    assert first[10] == "12/0/?"
    assert second[3:7] == ("?/2", "?/100 MiB", "?", "?/64")


def test_each_running_execution_has_its_own_rates_and_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, clock = Fake(), [10.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    sampler = Sampler(fake, [], by_execution=True)  # type: ignore[arg-type]
    fake.listed = [EXECUTION, {**EXECUTION, "id": "y" * 12}]
    fake.now = {"a": metrics(5.0, 1 << 20), "b": UNKNOWN, "x": metrics(1.0, 1 << 20)}
    assert [one.subject["id"] for one in sampler.sample().executions] == ["x" * 12]
    clock[0] = 12.0
    fake.now["x"] = metrics(2.0, 5 << 20, read=2 << 20)
    [sample] = sampler.sample().executions
    assert (sample.cpu_cores, sample.read_rate, sample.memory_share) == (0.5, 1 << 20, 0.5)
    header, row = usage_table.running_rows([sample], "disk", {})
    assert len(header) == len(row)
    assert row[3:7] == ("0.50/0.5", "5 MiB/10 MiB", "[#####.....]  50%", "3/7")
    assert row[9:] == ("12/0/?", "sleep 9")


def ended(number: int, at: int) -> dict[str, Any]:
    return {
        **EXECUTION, "id": str(number) * 12, "status": "EXITED",
        "finished_at": f"2026-01-02T03:04:{at:02}Z",
    }  # fmt: skip


def test_what_ended_is_asked_for_once_and_bounded() -> None:
    fake = Fake()
    last = Ended(fake, 2)  # type: ignore[arg-type]
    fake.listed = [ended(2, 20), ended(3, 30), ended(4, 10), EXECUTION]
    assert [one["id"][0] for one in last.look()] == ["3", "2"]
    fake.listed = [ended(5, 40)]
    assert [one["id"][0] for one in last.look()] == ["5", "3"]
    assert fake.asked == [{}, {"ended_after": "2026-01-02T03:04:30Z"}]


def test_a_screen_holds_something_of_all_that_fits() -> None:
    now = Samples(
        [Sample(0.0, sandbox("s"), metrics(1.0, 1 << 20))] * 30,
        [Sample(0.0, EXECUTION, metrics(1.0, 1 << 20))] * 30,
    )
    used = {"cpu_seconds": 1.0, "memory_peak_bytes": None}
    how = {"exit_code": 0, "error_code": None, "limit_owner": None, "failure": None}
    gone = {**ended(1, 1), **how, "usage": used, "unkillable": False}
    for height in (1, 5, 8, 24, 64, 200):
        found = parts(now, [gone] * 9, "cpu", height, 200)
        assert sum(1 if isinstance(part, str) else len(part) for part in found) <= height
        assert str(found[0]).startswith("30 sandboxes, 30 executions")
    for order in usage_table.ORDERS:
        title = str(parts(now, [], order, 24, 80)[0])
        assert len(title) <= 80
        assert f"by {order}" in title
        assert "q ends" in title
    few = Samples(now.sandboxes[:1], now.executions[:1])
    assert str(parts(few, [], "cpu", 24, 80)[0]).startswith("1 sandbox, 1 execution ")
    text = str(parts(now, [], "cpu", 24, 200))
    assert text.count("sssssssss") >= 8
    assert text.count("sleep 9") >= 8
    assert text.count(" more") == 2


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
