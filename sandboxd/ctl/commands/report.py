# SPDX-License-Identifier: Apache-2.0
"""sandboxctl report."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import option
from sandboxd.ctl.moment import FORMS, moment
from sandboxd.ctl.report import gather, text
from sandboxd.ctl.show import print_json, print_parts
from sandboxd.errors import InvalidRequest


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", action="store_true", help="one page with plots, on standard output")
    form.add_argument(
        "--output", "-o", choices=("table", "json"), default="table", help="default: table"
    )
    parser.add_argument(
        "--since", type=option(moment), default="1h", metavar="TIME", help=f"{FORMS}; default: 1h"
    )
    parser.add_argument(
        "--until", type=option(moment), metavar="TIME", help="the same; default: now"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Report on a period: usage over time, verdicts, top consumers, refused requests."""
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
        print_parts(text.parts(report))
    return 0
