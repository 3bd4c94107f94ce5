# SPDX-License-Identifier: Apache-2.0
"""sandboxctl wait."""

from __future__ import annotations

import argparse

from sandboxd.client.calls import RUNNING
from sandboxd.ctl import exits, verdict
from sandboxd.ctl.connect import connect
from sandboxd.ctl.interrupts import Interrupts
from sandboxd.ctl.limits import add_output_format
from sandboxd.ctl.show import print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--quiet", "-q", action="store_true", help="nothing on stderr but errors")
    add_output_format(parser)
    parser.add_argument("sandbox", metavar="SANDBOX", help="id or name")
    parser.add_argument(
        "execution", nargs="?", metavar="EXECUTION", help="id; default: all that run in it"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Wait for executions to end; return the first exit code other than 0."""
    client = connect(arguments)
    if arguments.execution is not None:
        wanted = [(arguments.sandbox, arguments.execution)]
    else:
        running = client.list_executions(arguments.sandbox, status=",".join(RUNNING))
        wanted = [(one["sandbox_id"], one["id"]) for one in running]
    ended = []
    with Interrupts():
        for place in wanted:
            execution = client.finish_execution(*place)
            ended.append(execution)
            if not arguments.quiet:
                exits.say(f"{execution['id']}: {verdict.verdict(execution)}")
    if arguments.output == "json":
        print_json(ended)
    return next((code for one in ended if (code := exits.of_execution(one))), 0)
