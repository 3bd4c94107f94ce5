# SPDX-License-Identifier: Apache-2.0
"""sandboxctl stats."""

from __future__ import annotations

import argparse
import time

from sandboxd.ctl import usage_table
from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import add_output_format
from sandboxd.ctl.samples import Sampler
from sandboxd.ctl.show import print_json, print_table

# Long enough for a rate.
_APART_SECONDS = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--sort", choices=tuple(usage_table.ORDERS), default="memory", help="largest first"
    )
    add_output_format(parser)
    parser.add_argument("sandboxes", nargs="*", metavar="SANDBOX", help="id or name; default: all")


def execute(arguments: argparse.Namespace) -> int:
    """Print the current usage of sandboxes; with -o json, the metrics."""
    sampler = Sampler(connect(arguments), arguments.sandboxes)
    samples = sampler.sample().sandboxes
    is_json = arguments.output == "json"
    if samples and (not is_json or arguments.sort in usage_table.BY_RATE):
        # A rate needs two samples with time between.
        time.sleep(_APART_SECONDS)
        samples = sampler.sample().sandboxes
    if is_json:
        found = usage_table.ordered(samples, arguments.sort)
        print_json([{"name": one.subject["name"], **one.metrics} for one in found])
        return 0
    header, *rows = usage_table.rows(samples, arguments.sort)
    print_table(header, rows)
    return 0
