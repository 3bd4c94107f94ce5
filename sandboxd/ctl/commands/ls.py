# SPDX-License-Identifier: Apache-2.0
"""sandboxctl ls."""

from __future__ import annotations

import argparse

from sandboxd.client.calls import Answer
from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import add_output_format
from sandboxd.ctl.show import age, limit_value, print_json, print_table

_GONE = ("released", "failed")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("--all", "-a", action="store_true", help="released ones, too")
    parser.add_argument("--ids", action="store_true", help="only ids, one a line")
    add_output_format(parser)


def execute(arguments: argparse.Namespace) -> int:
    """List sandboxes."""
    found = [
        sandbox
        for sandbox in connect(arguments).list_sandboxes()
        if arguments.all or sandbox["state"] not in _GONE
    ]
    if arguments.output == "json":
        print_json(found)
    elif arguments.ids:
        for sandbox in found:
            print(sandbox["id"])
    else:
        header = ("ID", "NAME", "STATE", "ISOLATION", "MEMORY", "CPUS", "PIDS", "UID", "AGE")
        print_table(header, map(_row, found))
    return 0


def _row(sandbox: Answer) -> tuple[str, ...]:
    limits = sandbox["limits"]
    return (
        sandbox["id"],
        sandbox["name"] or "-",
        sandbox["state"],
        sandbox["isolation"],
        limit_value("memory_bytes", limits["memory_bytes"]),
        limit_value("cpus", limits["cpus"]),
        limit_value("pids", limits["pids"]),
        str(sandbox["owner_uid"]),
        age(sandbox["created_at"]),
    )
