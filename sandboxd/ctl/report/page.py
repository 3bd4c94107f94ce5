# SPDX-License-Identifier: Apache-2.0
"""A report as one HTML page with inline plots, which loads no other resource.

Names and command lines come from callers and programs: jinja2 escapes every value, and the page's
Content-Security-Policy forbids scripts and loads.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

from sandboxd.client.calls import JsonObject
from sandboxd.core.quantity import format_bytes
from sandboxd.ctl.owners import user
from sandboxd.ctl.report import charts
from sandboxd.ctl.report.charts import Chart, Span
from sandboxd.ctl.report.gather import Report
from sandboxd.ctl.show import command_line, duration, printable
from sandboxd.ctl.verdict import verdict
from sandboxd.errors import ConfigError

# In stacking order; the style sheet has a colour for each.
STATUSES = (
    "EXITED", "SIGNALED", "OOM_KILLED", "TIMED_OUT", "CPU_TIME_EXCEEDED", "OUTPUT_LIMIT",
    "DISK_QUOTA_EXCEEDED", "KILLED", "LOST",
)  # fmt: skip
_REFUSALS = (
    "INVALID_REQUEST", "SANDBOX_NOT_FOUND", "EXECUTION_NOT_STARTED", "CAPACITY_EXCEEDED",
    "CALLER_QUOTA_EXCEEDED", "EXECUTION_LIMIT_REACHED", "DRAINING",
)  # fmt: skip
_FINEST = timedelta(minutes=1)


def render(report: Report) -> str:
    """Return the whole page. Raises ConfigError if jinja2 is not installed."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as exc:
        raise ConfigError(
            "cannot write a page: jinja2 is not installed",
            hint="install python3-jinja2, or leave --html out",
        ) from exc
    environment = Environment(
        loader=FileSystemLoader(os.path.dirname(__file__)), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "bytes": lambda value: "unknown" if value is None else format_bytes(int(value)),
        "seconds": _seconds,
        "percent": lambda value: f"{value:.0f} %" if value >= 1 else "< 1 %",
        "command": lambda argv: command_line(argv, width=80),
        "printable": printable,
        "owner": lambda uid: "others" if uid is None else printable(user(uid)),
        "verdict": lambda execution: printable(verdict(execution)),
        "moment": lambda at: f"{at:%Y-%m-%d %H:%M:%S}",
    }
    page = environment.get_template("page.html")
    return page.render(report=report, charts=_charts(report), frame=charts, statuses=STATUSES)


def _seconds(value: float | None) -> str:
    if value is None:
        return "unknown"
    return duration(value) if value else "0 s"


def _charts(report: Report) -> list[Chart]:
    step = report.interval_seconds
    until = max(report.until, report.since + _FINEST)
    span = Span(report.since, until, report.known_since, step)
    points = report.points

    def rate(name: str) -> dict[datetime, Any]:
        def each(point: JsonObject) -> float | None:
            return None if point[name] is None else point[name] / step

        return charts.by_time(points, each)

    def most(name: str) -> dict[datetime, Any]:
        return charts.by_time(points, lambda point: point[name])

    def number(value: float) -> str:
        return f"{value:.3g}"

    def per_second(value: float) -> str:
        return f"{charts.size(value)}/s"

    io = {"read": rate("io_read_bytes"), "written": rate("io_written_bytes")}
    return [
        charts.areas(span, "Executions at once", {"executions": most("executions")}, number),
        charts.areas(span, "Processor cores in use", {"cpu": rate("cpu_seconds")}, number),
        charts.areas(span, "Memory", {"memory": most("memory_bytes")}, charts.size, is_binary=True),
        charts.areas(span, "Disk", io, per_second, is_binary=True),
        charts.stacks(span, "Verdicts", most("ended"), STATUSES),
        charts.stacks(span, "Refused requests", most("refused"), _REFUSALS),
    ]
