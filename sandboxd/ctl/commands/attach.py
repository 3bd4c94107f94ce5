# SPDX-License-Identifier: Apache-2.0
"""sandboxctl attach."""

from __future__ import annotations

import argparse

from sandboxd.client.calls import RUNNING
from sandboxd.client.tail import STREAMS
from sandboxd.ctl.connect import connect
from sandboxd.ctl.follow import add_following, follow
from sandboxd.ctl.interrupts import Interrupts
from sandboxd.ctl.lines import last_lines
from sandboxd.ctl.printer import Printer
from sandboxd.errors import ExecutionFinished, InvalidRequest


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--stdin", "-i", action="store_true",
        help="pass standard input on, as it comes; a program with a terminal gets it anyway",
    )  # fmt: skip
    add_following(parser)
    parser.add_argument("sandbox", metavar="SANDBOX", help="id or name")
    parser.add_argument("execution", metavar="EXECUTION", help="id")


def execute(arguments: argparse.Namespace) -> int:
    """Follow a running execution as if started here: terminal or output, end, exit code."""
    client = connect(arguments)
    execution = client.get_execution(arguments.sandbox, arguments.execution)
    if execution["status"] not in RUNNING:
        raise ExecutionFinished(
            f"cannot attach to execution {execution['id']}: it is {execution['status']}",
            hint="sandboxctl logs shows what it printed",
        )
    arguments.tty, arguments.is_fed, arguments.output = execution["tty"], arguments.stdin, "table"
    if arguments.tty:
        from sandboxd.ctl import terminal

        size = terminal.size("attach at a terminal, or see what it prints by sandboxctl logs -f")
        terminal.resize(client, execution, size)
    elif arguments.stdin and not execution["stdin_open"]:
        raise InvalidRequest("cannot pass standard input on: the program was started without -i")
    # The last line on a terminal has the cursor, as after a prompt.
    lines = 1 if arguments.tty else 0
    printer = Printer({name: last_lines(client, execution, name, lines) for name in STREAMS})
    with Interrupts() as interrupts:
        return follow(client, lambda _wait: execution, arguments, interrupts, printer)
