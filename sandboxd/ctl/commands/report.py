# SPDX-License-Identifier: Apache-2.0
"""sandboxctl report."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import option
from sandboxd.ctl.report import gather, text
from sandboxd.ctl.show import print_json
from sandboxd.errors import InvalidRequest
from sandboxd.quantity import parse_seconds

_FORMS = ("such as 2026-01-02T03:04:05Z", "how long ago, such as 2h")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", action="store_true", help="one page with plots, on standard output")
    form.add_argument(
        "--output", "-o", choices=("table", "json"), default="table", help="default: table"
    )
    when = f"{_FORMS[0]}, or {_FORMS[1]}"
    parser.add_argument(
        "--since", type=option(moment), default="1h", metavar="TIME", help=f"{when}; default: 1h"
    )
    parser.add_argument(
        "--until", type=option(moment), metavar="TIME", help="the same; default: now"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Say what ran in a period: use over time, verdicts, top consumers, refused requests."""
    until = arguments.until or datetime.now(UTC)
    if arguments.since >= until:
        raise InvalidRequest("cannot report: --since must be before --until")
    report = gather.gather(connect(arguments), arguments.since, until)
    if arguments.html:
        from sandboxd.ctl.report import page

        print(page.render(report))
    elif arguments.output == "json":
        print_json(gather.plain(report))
    else:
        print(text.render(report))
    return 0


def moment(given: str) -> datetime:
    """A time, or one so long ago. Raises ValueError."""
    if "T" in given:
        found = datetime.fromisoformat(given)
        if found.tzinfo is None:
            raise ValueError("needs a time zone, such as Z")
        return found.astimezone(UTC)
    try:
        seconds = parse_seconds(given)
    except ValueError as exc:
        raise ValueError(f"neither a time {_FORMS[0]}, nor {_FORMS[1]}") from exc
    return datetime.now(UTC) - timedelta(seconds=seconds)
