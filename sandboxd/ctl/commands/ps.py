# SPDX-License-Identifier: Apache-2.0
"""sandboxctl ps."""

from __future__ import annotations

import argparse

from sandboxd.client.calls import Answer
from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import add_metadata, add_output_format
from sandboxd.ctl.show import age, command_line, duration, print_json, print_table

_RUNNING = ("PENDING", "RUNNING")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("--all", "-a", action="store_true", help="ended ones, too")
    parser.add_argument("--status", metavar="STATUS", help="only those of it, such as OOM_KILLED")
    parser.add_argument("--name", help="only those in the sandbox of this name")
    add_metadata(parser, "only those in sandboxes that have it")
    add_output_format(parser)
    parser.add_argument("sandbox", nargs="?", metavar="SANDBOX", help="id or name; default: all")


def execute(arguments: argparse.Namespace) -> int:
    """List executions."""
    filters = {f"metadata.{key}": value for key, value in arguments.metadata}
    if arguments.name:
        filters["name"] = arguments.name
    if arguments.status:
        filters["status"] = arguments.status.upper()
    found = [
        execution
        for execution in connect(arguments).list_executions(arguments.sandbox, **filters)
        if arguments.all or arguments.status or execution["status"] in _RUNNING
    ]
    if arguments.output == "json":
        print_json(found)
    else:
        header = ("SANDBOX", "ID", "STATUS", "EXIT", "AGE", "WALL", "COMMAND")
        print_table(header, map(_row, found))
    return 0


def _row(execution: Answer) -> tuple[str, ...]:
    wall = execution["usage"]["wall_seconds"]
    code, number = execution["exit_code"], execution["signal"]
    return (
        execution["sandbox_id"],
        execution["id"],
        execution["status"],
        str(code) if code is not None else f"signal {number}" if number is not None else "-",
        age(execution["created_at"]),
        "-" if wall is None else duration(wall),
        command_line(execution["argv"]),
    )
