# SPDX-License-Identifier: Apache-2.0
"""sandboxctl top."""

from __future__ import annotations

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.client.calls import Client
from sandboxd.ctl import usage_table
from sandboxd.ctl.connect import connect
from sandboxd.ctl.interrupts import Interrupts
from sandboxd.ctl.limits import option
from sandboxd.ctl.samples import Sampler, newest_executions
from sandboxd.ctl.show import table
from sandboxd.errors import InvalidRequest
from sandboxd.quantity import parse_seconds

_KEYS = {name[0]: name for name in usage_table.ORDERS}
# xterm's other screen and no cursor, and both back; home, and erase what is below.
_ENTER, _LEAVE, _HOME, _ERASE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument(
        "--sort", choices=tuple(usage_table.ORDERS), default="cpu", help="largest first"
    )
    parser.add_argument(
        "--every", type=option(parse_seconds), default=2.0, metavar="TIME", help="default: 2s"
    )
    parser.add_argument("sandboxes", nargs="*", metavar="SANDBOX", help="id or name; default: all")


def execute(arguments: argparse.Namespace) -> int:
    """Show what sandboxes use until q is pressed; c, m, p, i and d choose the order."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequest(
            "cannot show a live table: not a terminal", hint="use sandboxctl stats"
        )
    client = connect(arguments)
    sampler, order = Sampler(client, arguments.sandboxes), arguments.sort
    sampler.sample()
    with Interrupts(), _screen():
        key = _key(min(0.5, arguments.every))
        while key != "q":
            order = _KEYS.get(key, order)
            began = time.monotonic()
            _draw(lines(client, sampler, order))
            key = _key(max(0.0, began + arguments.every - time.monotonic()))
    return 0


def lines(client: Client, sampler: Sampler, order: str) -> list[str]:
    """The whole of the screen."""
    samples = sampler.sample()
    running = sum(sample.metrics["executions"]["running"] for sample in samples)
    keys = ", ".join(f"{key} {name}" for key, name in _KEYS.items())
    height = os.get_terminal_size().lines
    found = [f"{len(samples)} sandboxes, {running} executions; by {order} ({keys}; q ends)", ""]
    found += table(usage_table.rows(samples, order))
    room = height - len(found) - 3
    if room > 0:
        found += ["", *table(usage_table.execution_rows(newest_executions(client, room)))]
    return found


def _draw(found: list[str]) -> None:
    columns, rows = os.get_terminal_size()
    shown = [f"{line[:columns]}\x1b[K" for line in found[:rows]]
    sys.stdout.write(_HOME + "\r\n".join(shown) + _ERASE)
    sys.stdout.flush()


def _key(seconds: float) -> str:
    """The key that was pressed within `seconds`, or nothing."""
    readable, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
    if not readable:
        return ""
    # A terminal that hung up reads as its end.
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") or "q"


@contextmanager
def _screen() -> Iterator[None]:
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setcbreak(sys.stdin.fileno())
        sys.stdout.write(_ENTER)
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
