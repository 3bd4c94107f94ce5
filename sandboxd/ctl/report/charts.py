# SPDX-License-Identifier: Apache-2.0
"""Points as shapes in the units of a page's view box, without text from callers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sandboxd.client.calls import JsonObject
from sandboxd.core.quantity import format_bytes

WIDTH, HEIGHT = 720.0, 170.0
LEFT, RIGHT, TOP, BOTTOM = 88.0, 24.0, 10.0, 28.0
_TICK_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200, 14400)
_MOST_TICKS = 8
Write = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Tick:
    """A position on an axis, with a label."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle; `kind`: the name of the colour."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Area:
    """A closed shape and the line along the top."""

    shape: str
    line: str
    kind: str


@dataclass(slots=True)
class Chart:
    """One plot. unknown_width: width of the part at the left without data."""

    title: str
    about: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    unknown_width: float
    areas: list[Area] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Span:
    """The time axis of all plots of a report."""

    since: datetime
    until: datetime
    known_since: datetime
    step_seconds: float

    def x(self, moment: datetime) -> float:
        """Return the x coordinate of a time, limited to the frame."""
        share = (moment - self.since) / (self.until - self.since)
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, share))

    def steps(self) -> list[datetime]:
        """Return the start of each possible point."""
        count = math.ceil((self.until - self.since).total_seconds() / self.step_seconds)
        return [self.since + timedelta(seconds=n * self.step_seconds) for n in range(count)]

    def ticks(self) -> list[Tick]:
        """Return ticks at round times."""
        minutes = (self.until - self.since).total_seconds() / 60
        apart = next((m for m in _TICK_MINUTES if minutes / m <= _MOST_TICKS), _TICK_MINUTES[-1])
        days = apart >= 1440
        first = self.since.replace(hour=0, minute=0, second=0, microsecond=0)
        count = math.ceil((self.since - first) / timedelta(minutes=apart))
        found = []
        while (at := first + timedelta(minutes=apart * count)) < self.until:
            found.append(Tick(self.x(at), f"{at:%d %b}" if days else f"{at:%H:%M}"))
            count += 1
        return found


def areas(
    span: Span,
    title: str,
    values: Mapping[str, Mapping[datetime, float | None]],
    write: Write,
    *,
    is_binary: bool = False,
) -> Chart:
    """Plot values that hold from one point to the next; a missing point is 0."""
    most = max((v for one in values.values() for v in one.values() if v is not None), default=0.0)
    chart = _frame(span, title, most, write, is_binary=is_binary)
    for kind, one in values.items():
        chart.areas.append(_area(span, one, _top(most, is_binary=is_binary), kind))
    if len(values) > 1:
        chart.legend = [(kind, kind) for kind in values]
    return chart


def stacks(
    span: Span, title: str, counts: Mapping[datetime, Mapping[str, int]], kinds: Iterable[str]
) -> Chart:
    """Plot stacked counts. kinds: in the order of colours; all further kinds are `other`."""
    named = list(kinds)
    most = max((sum(one.values()) for one in counts.values()), default=0)
    chart = _frame(span, title, most, lambda value: f"{value:g}", is_whole=True)
    top = _top(most, is_whole=True)
    used: dict[str, str] = {}
    step = timedelta(seconds=span.step_seconds)
    for at, one in sorted(counts.items()):
        x, end = span.x(at), span.x(at + step)
        below = 0
        for name in sorted(one, key=lambda n: (named.index(n) if n in named else len(named), n)):
            kind = name if name in named else "other"
            used[kind] = kind
            y, base = _y(below + one[name], top), _y(below, top)
            text = f"{at:%H:%M} {name}: {one[name]}"
            width = max(1.0, end - x - min(1.0, (end - x) / 4))
            chart.bars.append(Bar(_round(x), y, _round(width), _round(base - y), kind, text))
            below += one[name]
    order = [*named, "other"]
    chart.legend = [(kind, kind) for kind in sorted(used, key=order.index)]
    return chart


def by_time(points: list[JsonObject], value: Callable[[JsonObject], Any]) -> dict[datetime, Any]:
    """Return `value` of each point, by time."""
    return {datetime.fromisoformat(point["at"]): value(point) for point in points}


def size(value: float) -> str:
    """Format bytes."""
    return format_bytes(int(value))


def _frame(
    span: Span, title: str, most: float, write: Write, *, is_binary: bool = False,
    is_whole: bool = False,
) -> Chart:  # fmt: skip
    top = _top(most, is_binary=is_binary, is_whole=is_whole)
    shares = (0.0, 1.0) if is_whole and top % 2 else (0.0, 0.5, 1.0)
    return Chart(
        title=title,
        about=f"most: {write(most)}",
        x_ticks=span.ticks(),
        y_ticks=[Tick(_y(top * share, top), write(top * share)) for share in shares],
        unknown_width=_round(span.x(span.known_since) - LEFT),
    )


def _top(most: float, *, is_binary: bool = False, is_whole: bool = False) -> float:
    """Return the next round number: 1, 2 or 5 times a power of ten, or a power of two."""
    if is_binary:
        return float(2 ** max(10, math.ceil(math.log2(max(1.0, most)))))
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    top = next(power * step for step in (1, 2, 5, 10) if most <= power * step * (1 + 1e-9))
    return max(1.0, top) if is_whole else top


def _area(span: Span, values: Mapping[datetime, float | None], top: float, kind: str) -> Area:
    """Draw a step line; a point whose value is None leaves a gap."""
    step, base = timedelta(seconds=span.step_seconds), _y(0.0, top)
    shape, line = "", ""
    stairs: list[str] = []

    def finish() -> None:
        nonlocal shape, line
        if stairs:
            begin, end = (place.partition(",")[0] for place in (stairs[0], stairs[-1]))
            line += f"M{'L'.join(stairs)}"
            shape += f"M{begin},{base:g}L{'L'.join(stairs)}L{end},{base:g}Z"
            stairs.clear()

    for at in span.steps():
        value = values.get(at, 0.0)
        if at + step <= span.known_since or value is None:
            finish()
            continue
        begin, end = span.x(max(at, span.known_since)), span.x(at + step)
        y = _y(value, top)
        stairs += [f"{_round(begin):g},{y:g}", f"{_round(end):g},{y:g}"]
    finish()
    return Area(shape, line, kind)


def _y(value: float, top: float) -> float:
    return _round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top)


def _round(value: float) -> float:
    return round(value, 1)
