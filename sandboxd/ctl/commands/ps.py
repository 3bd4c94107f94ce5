# SPDX-License-Identifier: Apache-2.0
"""sandboxctl ps."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from sandboxd.client.calls import RUNNING, Client, JsonObject
from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import add_metadata, add_output_format
from sandboxd.ctl.owners import LIVE
from sandboxd.ctl.show import age, command_line, duration, print_json, print_table

HEADER = ("SANDBOX", "ID", "STATUS", "EXIT", "AGE", "WALL", "COMMAND")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--all", "-a", action="store_true", help="ended ones, too")
    parser.add_argument(
        "--status", action="append", metavar="STATUS",
        help="only those of it, such as OOM_KILLED; may be given again for more",
    )  # fmt: skip
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
        filters["status"] = ",".join(arguments.status).upper()
    elif not arguments.all:
        filters["status"] = ",".join(RUNNING)
    client = connect(arguments)
    found = list(client.list_executions(arguments.sandbox, **filters))
    if arguments.output == "json":
        print_json(found)
    else:
        print_table(HEADER, rows(client, found))
    return 0


def rows(client: Client, executions: Iterable[JsonObject]) -> list[tuple[str, ...]]:
    """Return a row for each execution, with the sandbox's name if known."""
    found, names = list(executions), {}
    if found:
        names = {box["id"]: box["name"] for box in client.list_sandboxes(state=LIVE)}
    return [_row(execution, names.get(execution["sandbox_id"])) for execution in found]


def _row(execution: JsonObject, name: str | None) -> tuple[str, ...]:
    wall = execution["usage"]["wall_seconds"]
    code, number = execution["exit_code"], execution["signal"]
    return (
        name or execution["sandbox_id"],
        execution["id"],
        execution["status"],
        str(code) if code is not None else f"signal {number}" if number is not None else "-",
        age(execution["created_at"]),
        "-" if wall is None else duration(wall),
        command_line(execution["argv"]),
    )
