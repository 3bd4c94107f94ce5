# SPDX-License-Identifier: Apache-2.0
"""sandboxctl exec."""

from __future__ import annotations

import argparse
from typing import Any

from sandboxd.client.calls import JsonObject
from sandboxd.ctl import limits
from sandboxd.ctl.connect import connect
from sandboxd.ctl.follow import add_execution, execution_body, follow, starter
from sandboxd.ctl.interrupts import Interrupts
from sandboxd.ctl.show import print_json
from sandboxd.errors import InvalidRequest


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    limits.add_limits(parser, limits.SANDBOXS, has_disk=False)
    add_execution(parser)
    parser.add_argument(
        "--detach", "-d", action="store_true", help="print the execution's id and leave it running"
    )
    limits.add_output_format(parser)
    parser.add_argument("sandbox", metavar="SANDBOX", help="id or name")


def execute(arguments: argparse.Namespace) -> int:
    """Run a command in a sandbox."""
    body = {**execution_body(arguments), "limits": limits.limits(arguments)}
    client = connect(arguments)
    if arguments.detach:
        if arguments.is_fed or arguments.tty:
            raise InvalidRequest(
                "cannot leave it running and give it input: leave -d or -i and -t out"
            )
        execution = client.start_execution(arguments.sandbox, body)
        if arguments.output == "json":
            print_json(execution)
        else:
            print(execution["id"])
        return 0

    def begin(asked: dict[str, Any], wait: float) -> JsonObject:
        return client.start_execution(arguments.sandbox, asked, wait_seconds=wait)

    with Interrupts() as interrupts:
        return follow(client, starter(client, arguments, body, begin), arguments, interrupts)
