# SPDX-License-Identifier: Apache-2.0
"""sandboxctl drain."""

from __future__ import annotations

import argparse
import time

from sandboxd.client.calls import RUNNING, Client
from sandboxd.core.quantity import parse_seconds
from sandboxd.ctl import exits
from sandboxd.ctl.commands import ps
from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import option
from sandboxd.ctl.show import print_table
from sandboxd.errors import InvalidRequest

_LOOK_SECONDS = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--wait", action="store_true", help="return once nothing runs any more")
    parser.add_argument(
        "--timeout", metavar="TIME", type=option(parse_seconds),
        help=f"with --wait: at most so long, then exit with {exits.NO_CAPACITY}; the host stays "
        "drained",
    )  # fmt: skip


def execute(arguments: argparse.Namespace) -> int:
    """Have the host refuse new work, and let running executions end."""
    if arguments.timeout is not None and not arguments.wait:
        raise InvalidRequest("cannot bound a wait: --timeout needs --wait")
    client = connect(arguments)
    running = client.set_draining(draining=True)["executions_running"]
    if not running:
        return 0
    if not arguments.wait:
        exits.say(f"executions that still run: {running}")
        print_table(ps.HEADER, ps.rows(client, client.list_executions(status=",".join(RUNNING))))
        return 0
    exits.say(f"waiting for the end of what runs: {running}")
    left = _wait(client, arguments.timeout)
    if left:
        exits.say(f"executions that still run: {left}; the host stays drained")
        return exits.NO_CAPACITY
    return 0


def _wait(client: Client, seconds: float | None) -> int:
    """Wait for the end of all executions; return how many still run."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        running = int(client.host()["executions_running"])
        if not running or (deadline is not None and time.monotonic() >= deadline):
            return running
        # Executions of several owners: no single request waits for all of them.
        time.sleep(_LOOK_SECONDS)
