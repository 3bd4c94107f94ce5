# SPDX-License-Identifier: Apache-2.0
"""The figures of `./dev bench`: ratios, and when one is worse than the kept one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.figures import report
from tests.benchmarks.figures.samples import interleaved, ratios, spread

FIGURES = {
    "latency": {"base": "bwrap", "ratio": {"bwrap": 1.0, "execution": 2.0}},
    "output": {"ratio_more_is_better": {"speed": 0.5}},
    "idle": {"wake_ups_per_second": {"daemon": 7.4}},
}


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report, "KEPT", tmp_path / "kept.json")


def test_ways_are_tried_in_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []
    ways = {name: (lambda name=name: order.append(name)) for name in ("a", "b")}
    taken = interleaved(ways, 2)
    assert order == ["a", "b"] * 3
    assert {name: each.count for name, each in taken.items()} == {"a": 2, "b": 2}


def test_a_ratio_is_of_medians() -> None:
    taken = {"base": spread([1.0, 2.0, 3.0]), "way": spread([4.0, 5.0, 90.0])}
    assert ratios(taken, "base") == {"base": 1.0, "way": 2.5}


def test_ratios_are_found_by_name_and_all_mean_less_is_better() -> None:
    found = {"latency / bwrap": 1.0, "latency / execution": 2.0, "output / speed": 2.0}
    assert report.found_ratios(FIGURES) == found


@pytest.mark.usefixtures("kept")
def test_a_ratio_is_worse_beyond_the_slack_and_only_in_its_own_place() -> None:
    report.keep("bare", FIGURES)
    slower = {"latency": {"ratio": {"execution": 2.0 * report.SLACK + 0.01}}}
    assert report.worse("bare", FIGURES) == []
    assert [line.partition(":")[0] for line in report.worse("bare", slower)] == [
        "latency / execution"
    ]
    assert report.worse("systemd", slower) == []


@pytest.mark.usefixtures("kept")
def test_places_are_kept_beside_each_other() -> None:
    report.keep("bare", FIGURES)
    report.keep("systemd", {"latency": {"ratio": {"execution": 0.3}}})
    assert report.kept_ratios("systemd") == {"latency / execution": 0.3}
    assert report.kept_ratios("bare")["latency / execution"] == 2.0
