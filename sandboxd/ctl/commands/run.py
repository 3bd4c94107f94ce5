# SPDX-License-Identifier: Apache-2.0
"""sandboxctl run."""

from __future__ import annotations

import argparse
from typing import Any

from sandboxd.client.calls import JsonObject
from sandboxd.ctl import files, limits
from sandboxd.ctl.connect import connect_or_start
from sandboxd.ctl.follow import add_execution, execution_body, follow, starter
from sandboxd.ctl.interrupts import Interrupts


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    limits.add_limits(parser, limits.SERVERS)
    limits.add_place(parser)
    add_execution(parser)
    files.add_sent(parser)
    limits.add_output_format(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run a command in a new sandbox; without a daemon, by a private one."""
    body = {
        **limits.place(arguments),
        **execution_body(arguments),
        **files.sent(arguments),
        "limits": limits.limits(arguments),
    }
    with (
        Interrupts() as interrupts,
        connect_or_start(arguments, interrupts, quiet=arguments.quiet) as client,
    ):

        def begin(asked: dict[str, Any], wait: float) -> JsonObject:
            return client.run(asked, wait_seconds=wait)

        return follow(client, starter(client, arguments, body, begin), arguments, interrupts)
