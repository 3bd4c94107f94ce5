# SPDX-License-Identifier: Apache-2.0
"""sandboxctl inspect."""

from __future__ import annotations

import argparse

from sandboxd.client.calls import JsonObject
from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import add_output_format
from sandboxd.ctl.owners import user
from sandboxd.ctl.show import Part, command_line, print_json, print_parts, printable
from sandboxd.ctl.verdict import enforcement, summary

_SHOWN = (
    "id", "name", "state", "isolation", "network", "scheme", "unit", "owner_uid", "created_at",
    "expires_at", "last_used_at",
)  # fmt: skip
_TIMES = ("created_at", "started_at", "finished_at")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_output_format(parser)
    parser.add_argument("sandbox", metavar="SANDBOX", help="id or name")
    parser.add_argument("execution", nargs="?", metavar="EXECUTION", help="id of one in it")


def execute(arguments: argparse.Namespace) -> int:
    """Show a sandbox or an execution in full."""
    client = connect(arguments)
    if arguments.execution is None:
        answer = client.get_sandbox(arguments.sandbox)
    else:
        answer = client.get_execution(arguments.sandbox, arguments.execution)
    if arguments.output == "json":
        print_json(answer)
    elif arguments.execution is None:
        _print_sandbox(answer)
    else:
        _print_execution(answer)
    return 0


def _print_sandbox(sandbox: JsonObject) -> None:
    rows = [(name, str(sandbox[name])) for name in _SHOWN if sandbox[name] is not None]
    rows.append(("owner", user(sandbox["owner_uid"])))
    rows += [(f"env {key}", value) for key, value in sandbox["env"].items()]
    rows += [(f"metadata {key}", value) for key, value in sandbox["metadata"].items()]
    _print(rows, [], sandbox)


def _print_execution(execution: JsonObject) -> None:
    rows = [(name, str(execution[name])) for name in _TIMES if execution[name] is not None]
    rows += [("sandbox", execution["sandbox_id"]), ("id", execution["id"])]
    rows.append(("command", command_line(execution["argv"], width=1000)))
    if execution["unit"] is not None:
        rows.append(("unit", printable(execution["unit"])))
    _print(rows, summary(execution), execution)


def _print(rows: list[tuple[str, str]], lines: list[str], subject: JsonObject) -> None:
    parts: list[Part] = [[("FIELD", "VALUE"), *rows], "", *lines]
    if held := enforcement(subject["limits"], subject["enforcement"]):
        parts.append(held)
    print_parts(parts)
