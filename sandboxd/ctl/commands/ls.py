# SPDX-License-Identifier: Apache-2.0
"""sandboxctl ls."""

from __future__ import annotations

import argparse

from sandboxd.client.calls import JsonObject
from sandboxd.ctl import draining, limits
from sandboxd.ctl.connect import connect
from sandboxd.ctl.owners import LIVE, user
from sandboxd.ctl.show import age, limit_value, print_json, print_table
from sandboxd.errors import InvalidRequest


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--all", "-a", action="store_true", help="released ones, too")
    parser.add_argument(
        "--state", action="append", choices=("ready", "suspended", "releasing", "released"),
        help="only those in it; may be given again for more",
    )  # fmt: skip
    parser.add_argument("--name", help="only those of this name")
    limits.add_metadata(parser, "only those that have it")
    parser.add_argument("--ids", action="store_true", help="only ids, one a line")
    limits.add_output_format(parser)


def execute(arguments: argparse.Namespace) -> int:
    """List sandboxes."""
    if arguments.ids and arguments.output == "json":
        raise InvalidRequest("cannot print ids as JSON: leave --ids or -o out")
    client = connect(arguments)
    found = list(client.list_sandboxes(**_filters(arguments)))
    if arguments.output == "json":
        print_json(found)
    elif arguments.ids:
        for sandbox in found:
            print(sandbox["id"])
    else:
        header = ("ID", "NAME", "STATE", "ISOLATION", "MEMORY", "CPUS", "PIDS", "OWNER", "AGE")
        print_table(header, map(_row, found))
        draining.warn(client)
    return 0


def _filters(arguments: argparse.Namespace) -> dict[str, object]:
    state = ",".join(arguments.state or ()) or (None if arguments.all else LIVE)
    asked = {"state": state, "name": arguments.name}
    asked |= {f"metadata.{key}": value for key, value in arguments.metadata}
    return {name: value for name, value in asked.items() if value is not None}


def _row(sandbox: JsonObject) -> tuple[str, ...]:
    held = sandbox["limits"]
    return (
        sandbox["id"],
        sandbox["name"] or "-",
        sandbox["state"],
        sandbox["isolation"],
        limit_value("memory_bytes", held["memory_bytes"]),
        limit_value("cpus", held["cpus"]),
        limit_value("pids", held["pids"]),
        user(sandbox["owner_uid"]),
        age(sandbox["created_at"]),
    )
