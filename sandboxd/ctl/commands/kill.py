# SPDX-License-Identifier: Apache-2.0
"""sandboxctl kill."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

from sandboxd.client.calls import RUNNING
from sandboxd.core.quantity import parse_seconds
from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import add_output_format, option
from sandboxd.ctl.show import print_json
from sandboxd.errors import ExecutionFinished


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--signal", "-s", metavar="SIGNAL", help="only send this, such as SIGUSR1")
    how.add_argument(
        "--grace", type=option(parse_seconds), metavar="TIME",
        help="SIGTERM first, and SIGKILL to all after TIME",
    )  # fmt: skip
    add_output_format(parser)
    parser.add_argument("sandbox", metavar="SANDBOX", help="id or name")
    parser.add_argument(
        "execution", nargs="?", metavar="EXECUTION", help="id; default: all that run in it"
    )


def execute(arguments: argparse.Namespace) -> int:
    """End an execution or all executions of a sandbox, or send a signal."""
    body: dict[str, Any] = {}
    if arguments.signal is not None:
        is_number = arguments.signal.isascii() and arguments.signal.isdigit()
        body["signal"] = int(arguments.signal) if is_number else arguments.signal.upper()
    if arguments.grace is not None:
        body["grace_seconds"] = arguments.grace
    client = connect(arguments)
    if arguments.execution is not None:
        execution = client.kill_execution(arguments.sandbox, arguments.execution, body)
        if arguments.output == "json":
            print_json(execution)
        return 0
    ended = []
    for running in client.list_executions(arguments.sandbox, status=",".join(RUNNING)):
        # The execution may have ended meanwhile.
        with suppress(ExecutionFinished):
            ended.append(client.kill_execution(running["sandbox_id"], running["id"], body))
    if arguments.output == "json":
        print_json(ended)
    return 0
