# SPDX-License-Identifier: Apache-2.0
"""Reports: what is in them, hostile names as text, bounds, and plots that stay in their frame."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from sandboxd.ctl import show
from sandboxd.ctl.columns import fit
from sandboxd.ctl.moment import moment
from sandboxd.ctl.report import charts, gather, page, text
from sandboxd.ctl.report.charts import Span
from sandboxd.errors import SandboxNotFound

SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
UNTIL = SINCE + timedelta(hours=6)
STEP = 120.0
EVIL = "</code></td><script>alert(1)</script>\x1b[31m\u202e\" onload='x"
# What a page may not ask for: anything but its own namespace of SVG would be one.
LOADS = {"src", "href", "srcset", "action", "data", "poster", "xlink:href"}


def execution(number: int, **more: Any) -> dict[str, Any]:
    usage = {"cpu_seconds": float(number), "memory_peak_bytes": number << 20, "wall_seconds": 1.0}
    return {
        "id": f"{number:012}", "sandbox_id": f"box{number % 3:09}", "status": "EXITED",
        "exit_code": 0, "signal": None, "error_code": None, "limit_owner": None, "failure": None,
        "unkillable": False, "limits": {"memory_bytes": 1 << 30}, "usage": usage,
        "argv": ["echo", EVIL], "created_at": SINCE.isoformat(),
        "finished_at": (SINCE + timedelta(minutes=1)).isoformat(), **more,
    }  # fmt: skip


def sums(**more: Any) -> dict[str, Any]:
    return {
        "executions": 2, "memory_bytes": 1 << 30, "cpu_seconds": 60.0, "io_read_bytes": 1 << 20,
        "io_written_bytes": 0, "ended": {"EXITED": 5, "OOM_KILLED": 1},
        "refused": {"CAPACITY_EXCEEDED": 3}, **more,
    }  # fmt: skip


class Fake:
    """A daemon with a past."""

    def __init__(self, *, points: int, executions: int, known_since: datetime = SINCE) -> None:
        self.known_since = known_since
        self.points = [
            {"at": (SINCE + timedelta(seconds=n * STEP)).isoformat(), **sums()}
            for n in range(points)
        ]
        self.owners = [{"owner_uid": uid, **sums()} for uid in (0, None)] if points else []
        self.executions = executions

    def host(self) -> dict[str, Any]:
        capacity = {"committed_bytes": 1 << 30, "budget_bytes": 8 << 30}
        return {"version": "1", "scheme": "rlimit", "capacity": capacity}

    def history(self, since: str, until: str, points: int) -> dict[str, Any]:
        assert points == gather.POINTS
        return {
            "since": since, "until": until, "known_since": self.known_since.isoformat(),
            "interval_seconds": STEP, "points": self.points, "owners": self.owners,
        }  # fmt: skip

    def get_sandbox(self, ref: str) -> dict[str, Any]:
        if ref == f"box{0:09}":
            return {"id": ref, "name": "named"}
        raise SandboxNotFound("cannot find it")

    def metrics(self, ref: str, *, by_execution: bool) -> dict[str, Any]:
        assert by_execution
        if ref == "gone":
            raise SandboxNotFound("cannot find it")
        now = {"cpu": {"seconds": 990.0}, "memory": {"peak_bytes": 990 << 20}}
        return {"by_execution": {f"{997:012}": now}}

    def list_executions(self, **filters: str) -> Iterator[dict[str, Any]]:
        if "status" in filters:
            assert filters == {"status": "PENDING,RUNNING"}
            yield execution(999, status="RUNNING", created_at=UNTIL.isoformat())
            unknown = {"cpu_seconds": None, "memory_peak_bytes": None, "wall_seconds": None}
            yield execution(997, status="RUNNING", finished_at=None, usage=unknown)
            yield execution(996, status="RUNNING", finished_at=None, sandbox_id="gone")
            return
        assert filters == {"ended_after": SINCE.isoformat()}
        yield execution(998, finished_at=(SINCE - timedelta(seconds=1)).isoformat())
        for number in range(self.executions):
            yield execution(number)


def report_of(fake: Fake) -> gather.Report:
    return gather.gather(fake, SINCE, UNTIL)  # type: ignore[arg-type]


def as_text(report: gather.Report) -> str:
    return "\n".join(show.plain(text.parts(report)))


class Page(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said += f"{data} "


def test_only_the_largest_of_the_time_are_kept() -> None:
    report = report_of(Fake(points=2, executions=500))
    largest = [one["usage"]["cpu_seconds"] for one in report.by_cpu]
    # What still runs, with what it has used so far, is among them.
    assert largest == [990.0, *range(499, 490, -1)]
    assert report.by_cpu[0]["status"] == "RUNNING"
    assert "still runs" in as_text(report)
    assert len(report.by_memory) == gather.TOP
    assert (report.records, report.running) == (500, 1)
    assert sum(one.executions for one in report.sandboxes) == 501
    assert [one.name for one in report.sandboxes if one.sandbox_id == f"box{0:09}"] == ["named"]
    assert (report.ended["EXITED"], report.refused["CAPACITY_EXCEEDED"]) == (10, 6)
    assert (report.total("cpu_seconds"), report.highest("memory_bytes")) == (120.0, 1 << 30)


def test_a_page_shows_hostile_text_as_text() -> None:
    html = page.render(report_of(Fake(points=100, executions=20)))
    found = Page(html)
    assert "script" not in {tag for tag, _ in found.tags}
    names = {name for _, attributes in found.tags for name in attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not names & LOADS
    assert "<script>alert(1)</script>" in found.said
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert not re.search(r"https?:|url\(|@import", html)
    policies = [a["content"] for tag, a in found.tags if a.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    text_form = as_text(report_of(Fake(points=100, executions=20)))
    assert "\x1b" not in text_form
    assert "\u202e" not in text_form


def test_a_page_holds_what_was_counted() -> None:
    said = " ".join(Page(page.render(report_of(Fake(points=3, executions=4)))).said.split())
    for expected in ("CAPACITY_EXCEEDED 6", "OOM_KILLED 2", "named", "4 of 12 that ended",
                     "1 GiB of 8 GiB promised now", "others"):  # fmt: skip
        assert expected in said
    plots = [tag for tag, _ in Page(page.render(report_of(Fake(points=3, executions=4)))).tags]
    assert plots.count("figure") == 6


def test_a_narrow_terminal_gets_tables_that_fit_it() -> None:
    tables = [
        part for part in text.parts(report_of(Fake(points=3, executions=4)))
        if not isinstance(part, str)
    ]  # fmt: skip
    heads = [fit(table, 80)[0] for table in tables]
    # What a table is sorted by stays.
    assert ("SANDBOX", "EXECUTION BY CPU", "CPU", "VERDICT", "COMMAND") in heads
    assert ("SANDBOX", "EXECUTION BY MEMORY", "MEMORY PEAK", "VERDICT", "COMMAND") in heads
    assert all(len(row) == len(table[0]) for table in tables for row in table)


@pytest.mark.parametrize("known_since", [SINCE, UNTIL - timedelta(seconds=1), UNTIL])
def test_an_empty_period_is_a_page_and_a_text_too(known_since: datetime) -> None:
    report = report_of(Fake(points=0, executions=0, known_since=known_since))
    said = Page(page.render(report)).said
    assert "No execution ended." in said
    assert "No request was refused." in said
    assert "executions ended   0, 1 running" in as_text(report)
    assert "unknown" not in as_text(report)


def test_a_page_is_bounded() -> None:
    small = page.render(report_of(Fake(points=gather.POINTS, executions=20)))
    large = page.render(report_of(Fake(points=gather.POINTS, executions=2000)))
    assert len(large) < 1.1 * len(small) < 400_000


def test_plots_stay_in_their_frame_and_leave_what_is_unknown_open() -> None:
    span = Span(SINCE, UNTIL, SINCE + timedelta(hours=1), STEP)
    steps = span.steps()
    values: dict[datetime, float | None] = {at: n * 1000.0 for n, at in enumerate(steps)}
    values[steps[90]] = None
    chart = charts.areas(span, "t", {"memory": values}, charts.size, is_binary=True)
    [area] = chart.areas
    places = [
        tuple(map(float, place.split(","))) for place in re.findall(r"[\d.]+,[\d.]+", area.line)
    ]
    assert min(x for x, _ in places) == pytest.approx(charts.LEFT + chart.unknown_width, abs=0.2)
    assert max(x for x, _ in places) <= charts.WIDTH - charts.RIGHT
    assert charts.TOP <= min(y for _, y in places)
    assert max(y for _, y in places) <= charts.HEIGHT - charts.BOTTOM
    assert area.line.count("M") == 2
    counts = {at: {"EXITED": 3, "nosuch": 2} for at in steps}
    piles = charts.stacks(span, "t", counts, ["EXITED"])
    assert {bar.kind for bar in piles.bars} == {"EXITED", "other"}
    for bar in piles.bars:
        assert charts.LEFT <= bar.x
        assert bar.x + bar.width <= charts.WIDTH - charts.RIGHT + 0.2
        assert charts.TOP <= bar.y <= bar.y + bar.height <= charts.HEIGHT - charts.BOTTOM


@pytest.mark.parametrize("hours", [0.01, 0.5, 1, 6, 24, 24 * 31])
def test_axes_have_few_round_ticks(hours: float) -> None:
    span = Span(SINCE, SINCE + timedelta(hours=hours), SINCE, STEP)
    ticks = span.ticks()
    assert len(ticks) <= 9
    assert len({tick.text for tick in ticks}) == len(ticks)
    for most in (0.0, 0.003, 1.0, 7.0, 999.0, 1e13):
        chart = charts.areas(span, "t", {"cpu": {SINCE: most}}, str)
        assert float(chart.y_ticks[-1].text) >= most


def test_json_says_the_same() -> None:
    found = json.loads(json.dumps(gather.plain(report_of(Fake(points=2, executions=3)))))
    assert found["ended"] == {"EXITED": 10, "OOM_KILLED": 2}
    assert found["since"] == SINCE.isoformat()
    assert found["sandboxes"][0]["executions"] == 2


def test_times_are_moments_or_so_long_ago() -> None:
    assert moment("2026-01-02T03:04:05Z") == SINCE
    ago = datetime.now(UTC) - moment("2h")
    assert timedelta(hours=1) < ago < timedelta(hours=3)
    for bad in ("2026-01-02T03:04:05", "yesterday", "", "-1h"):
        with pytest.raises(ValueError, match=r"."):
            moment(bad)
    with pytest.raises(ValueError, match=r"neither a time such as .*, nor how long ago"):
        moment("yesterday")
